//! `none`: first come, first served.

use super::{Dispatch, Elevator};
use crate::request::{Request, RequestId};
use base::Nanos;
use std::collections::VecDeque;

/// Requests leave in the order of arrival. Neighbours merge while they wait.
#[derive(Default)]
pub struct NoneElevator {
    fifo: VecDeque<RequestId>,
}

impl Elevator for NoneElevator {
    fn name(&self) -> &'static str {
        "none"
    }

    fn insert(&mut self, id: RequestId, _request: &Request, _now: Nanos) {
        self.fifo.push_back(id);
    }

    fn absorbed(&mut self, gone: RequestId, _absorbed: &Request, _into: RequestId) {
        self.fifo.retain(|&id| id != gone);
    }

    fn dispatch(&mut self, _view: &Dispatch<'_>) -> Option<RequestId> {
        self.fifo.pop_front()
    }
}
