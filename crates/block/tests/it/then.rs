//! Edges between requests: a bio that the queue sends when a group of others has succeeded.

use crate::common::{Disk, Ends, bio, info, queue, queue_with};
use block::{DeviceInfo, IoGroup, QueueConfig};

#[test]
fn a_bio_follows_the_last_of_its_group() {
    rt::testing::both(|cx| {
        let disk = Disk::held(info(4));
        let (queue, ends) = (queue(cx, &disk, "deadline"), Ends::default());
        let (log, record) = (IoGroup::new(), IoGroup::new());
        queue.submit(cx, bio("W0+1", log.end()));
        queue.submit(cx, bio("W10+1", log.end()));
        log.then(cx, &queue, bio("W20+1", record.end()));
        queue.submit(cx, bio("W30+1", ends.end("other")));
        assert_eq!(disk.take_seen(), ["W0+1", "W10+1", "W30+1"]);
        disk.finish(1);
        assert_eq!(disk.take_seen(), [""; 0], "one of the group is on its way");
        disk.finish(0);
        assert_eq!(disk.take_seen(), ["W20+1"]);
        disk.finish_all();
        record.wait(cx).expect("written");
        log.wait(cx).expect("written");
        assert_eq!(ends.take(), ["other ok"]);
    });
}

#[test]
fn a_bio_whose_group_failed_ends_with_its_error_and_is_never_sent() {
    rt::testing::both(|cx| {
        let disk = Disk::held(info(4));
        let queue = queue(cx, &disk, "none");
        let (log, record) = (IoGroup::new(), IoGroup::new());
        queue.submit(cx, bio("W0+2", log.end()));
        queue.submit(cx, bio("W10+1", log.end()));
        log.then(cx, &queue, bio("W20+1", record.end()));
        disk.fail(0, 1, 1);
        disk.finish(0);
        let error = record.wait(cx).expect_err("the group's error");
        assert_eq!((error.sector.0, error.count), (1, 1));
        assert_eq!(disk.take_seen(), ["W0+2", "W10+1"]);
        queue.drain(cx);
    });
}

#[test]
fn behind_a_group_that_has_ended_it_goes_at_once_and_may_need_a_flush() {
    rt::testing::both(|cx| {
        let disk = Disk::inline(DeviceInfo { volatile_cache: true, ..info(1) });
        let queue = queue(cx, &disk, "none");
        let (log, record) = (IoGroup::new(), IoGroup::new());
        queue.submit(cx, bio("W0+1", log.end()));
        log.then(cx, &queue, bio("W20+1F!", record.end()));
        record.wait(cx).expect("written");
        assert_eq!(disk.take_seen(), ["W0+1", "F", "W20+1", "F"]);
    });
}

/// Nobody can wait in event context: the bio goes beyond `nr_requests`, and larger than a request
/// it is cut as any other.
#[test]
fn it_needs_no_free_request_and_is_cut_where_it_must_be() {
    rt::testing::both(|cx| {
        let disk = Disk::held(DeviceInfo { max_bytes: 1024, ..info(1) });
        let queue = queue_with(cx, &disk, QueueConfig { nr_requests: 2, ..Default::default() });
        let (log, record) = (IoGroup::new(), IoGroup::new());
        queue.submit(cx, bio("W0+1", log.end()));
        log.then(cx, &queue, bio("W20+4", record.end()));
        queue.submit(cx, bio("W30+1", log.end()));
        assert_eq!(queue.stats().throttled, 0);
        disk.finish_all();
        record.wait(cx).expect("written");
        assert_eq!(disk.take_seen(), ["W0+1", "W30+1", "W20+2", "W22+2"]);
    });
}
