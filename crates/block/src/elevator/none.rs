//! `none`: first come, first served.

use super::hardware::Turns;
use super::{Dispatch, Elevator, TunableError, unknown_tunable};
use crate::DeviceInfo;
use crate::request::{Request, RequestId};
use base::Nanos;
use std::collections::VecDeque;

/// Requests leave in the order of arrival, of each hardware queue; these take turns. Neighbours
/// merge while they wait.
#[derive(Default)]
pub struct NoneElevator {
    queues: Turns<VecDeque<RequestId>>,
}

impl Elevator for NoneElevator {
    fn name(&self) -> &'static str {
        "none"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.queues.resize(info.hw_queues);
    }

    fn insert(&mut self, id: RequestId, request: &Request, _now: Nanos) {
        self.queues.of(request).push_back(id);
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, _into: RequestId) {
        self.queues.of(absorbed).retain(|&id| id != gone);
    }

    fn dispatch(&mut self, _view: &Dispatch<'_>) -> Option<RequestId> {
        self.queues.next(VecDeque::pop_front)
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        vec![self.queues.tunable()]
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        match self.queues.set_tunable(name, value)? {
            true => Ok(()),
            false => Err(unknown_tunable(self, name)),
        }
    }
}
