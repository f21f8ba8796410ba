//! A machine out of a device, where the device is one of ours in virtual time.

use std::sync::Arc;

use base::Nanos;
use block::Device;
use device::MemoryDevice;
use lab::calibrate::{Calibration, Kind, Setup, calibrate};
use model::Profile;
use rt::{World, WorldConfig};

fn calibrated(machine: &Profile, kind: Option<Kind>, write: bool) -> Calibration {
    World::new(WorldConfig::default()).run("calibrate", |cx| {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        let device = machine.device(cx.runtime(), memory).expect("a device");
        device.forget_content();
        let device: Arc<dyn Device> = device;
        let setup = Setup { write, limit: Nanos::from_secs(5), kind };
        calibrate(cx, device, &setup, &mut |_| ()).expect("calibrated")
    })
}

/// A device of known delays.
fn delayed() -> Profile {
    let machine = Profile::load("ram").expect("ram");
    let machine = machine.with("device.read_latency", "700 us").expect("a latency");
    let machine = machine.with("device.write_latency", "300 us").expect("a latency");
    machine.with("device.rate", "200 MB/s").expect("a rate")
}

fn number(found: &Calibration, key: &str) -> f64 {
    found.fit.numbers.iter().find(|one| one.key == key).expect(key).plain
}

/// Goal: a device of known delays gives them back within 5 %, says how far each
/// number may be off, and its profile can be read. Method: the machine `ram` with latencies and a
/// bus of our own; reads and writes.
#[test]
fn known_delays_come_back() {
    let machine = delayed();
    let found = calibrated(&machine, Some(Kind::Memory), true);
    for (key, known) in [("read_latency", 700.0), ("write_latency", 300.0), ("rate", 200.0)] {
        let ratio = number(&found, key) / known;
        assert!((0.95..1.05).contains(&ratio), "{key}: {}", number(&found, key));
    }
    assert!(found.fit.error_percent < 1.0, "{}", found.fit.error_percent);
    assert!(found.fit.numbers.iter().all(|number| number.within_percent.is_some()));
    for figure in &found.held_out.figures {
        assert!(figure.error_percent().abs() < 5.0, "{figure:?}");
    }
    let again = Profile::parse(&found.profile, "mine.toml").expect("a profile");
    assert_eq!(again.device.kind(), "memory");
    assert!(found.profile.contains("source = \"calibrated, within"), "{}", found.profile);
}

/// Goal: what is measured of a device, and the same measured again, is the same; a device that is
/// too small, or takes no writes, is refused by name.
#[test]
fn it_repeats_and_refuses_by_name() {
    let machine = delayed();
    let [one, two] = [(); 2].map(|()| calibrated(&machine, Some(Kind::Memory), false).profile);
    assert_eq!(one, two);
    World::new(WorldConfig::default()).run("small", |cx| {
        let setup = Setup { write: false, limit: Nanos::from_secs(1), kind: None };
        let small: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let error = calibrate(cx, small, &setup, &mut |_| ()).expect_err("too small");
        assert_eq!(error, "1048576 bytes are too few to calibrate: give 32 MiB or more");
    });
}

/// Goal: our own disk, array and flash are predicted within 5 % where they were not measured.
/// Method: as above, the best of all kinds. It takes minutes: `IOPATH_CALIBRATE=1`.
#[test]
fn our_own_machines_are_predicted() {
    if std::env::var_os("IOPATH_CALIBRATE").is_none() {
        return;
    }
    for (name, kind) in
        [("disk-7200", Kind::Disk), ("array-2010", Kind::Array), ("flash-sata", Kind::Flash)]
    {
        let found = calibrated(&Profile::load(name).expect(name), None, false);
        assert_eq!(found.fit.kind, kind, "{name}: {:?}", found.ladder);
        let off = found.held_out.figures[0].error_percent();
        assert!(off.abs() < 5.0, "{name}: {off} %");
    }
}
