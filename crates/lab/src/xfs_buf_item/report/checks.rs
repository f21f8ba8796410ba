//! What must hold, with the bands that were set before anything was run.

use super::super::published::CPUS;
use super::{Check, Report, Role};

impl Report {
    pub(super) fn all_checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        self.exact_checks(&mut checks);
        self.structure_checks(&mut checks);
        self.modelled_checks(&mut checks);
        self.measured_checks(&mut checks);
        checks
    }

    fn exact_checks(&self, checks: &mut Vec<Check>) {
        let mut check = |title: &str, value: f64, low: f64, high: f64| {
            checks.push(Check { title: title.to_owned(), value, low, high, role: Role::Exact });
        };
        let all = |alike: bool| f64::from(u8::from(alike));
        for (size, alike) in ["4 KiB", "64 KiB"].into_iter().zip(self.worlds.alike) {
            let title = format!("{size}: the variants write the same image, log included");
            check(&title, all(alike), 1.0, 1.0);
        }
        let alike = self.steps.iter().all(|steps| steps.alike);
        check("the same regions for every bitmap, each in one piece", all(alike), 1.0, 1.0);
        let ratio = |size: usize| {
            let [before, after] = [0, 1].map(|way: usize| self.worlds.counts[size][way][0]);
            let sum = |count: xfs::log::Gauge| (count.bits + count.addresses) as f64;
            sum(before) / sum(after)
        };
        check("64 KiB: steps of a create, bitwise by contiguous", ratio(1), 15.0, f64::INFINITY);
        check("4 KiB: steps of a create, bitwise by contiguous", ratio(0), 3.0, f64::INFINITY);
    }

    fn structure_checks(&self, checks: &mut Vec<Check>) {
        let mut check = |title: &str, value: f64, low: f64, high: f64| {
            let title = format!("time of both passes, {title}");
            checks.push(Check { title, value, low, high, role: Role::Measured });
        };
        let nanos = |title: &str| {
            let steps = self.steps.iter().find(|steps| steps.title == title);
            steps.map_or([f64::NAN; 3], |steps| steps.nanos)
        };
        for (title, least) in [("64 KiB, all", 15.0), ("4 KiB, all", 3.0)] {
            let [before, patch, ours] = nanos(title);
            check(&format!("{title}: bitwise by contiguous"), before / patch, least, f64::INFINITY);
            check(&format!("{title}: bitwise by ours"), before / ours, least, f64::INFINITY);
        }
        let [before, patch, ours] = nanos("64 KiB, one chunk");
        check("one chunk: contiguous by bitwise", patch / before, 0.9, 1.1);
        check("one chunk: ours by bitwise", ours / before, 0.0, 1.1);
    }

    fn modelled_checks(&self, checks: &mut Vec<Check>) {
        let mut check = |title: &str, value: f64, low: f64, high: f64, role: Role| {
            checks.push(Check { title: format!("modelled, {title}"), value, low, high, role });
        };
        let nanos = &self.worlds.modelled;
        let rate = |size: usize, way: usize| CPUS * 1e9 / nanos[size][way][0];
        let (fixed, told) = (Role::Calibrated, Role::Predicted);
        check("original, creates/s at 4 KiB", rate(0, 0), 215e3, 225e3, fixed);
        check("original, creates/s at 64 KiB", rate(1, 0), 112e3, 118e3, fixed);
        check("64 KiB: creates/s, patched by original", rate(1, 1) / rate(1, 0), 1.15, 1.27, told);
        check("4 KiB: creates/s, patched by original", rate(0, 1) / rate(0, 0), 1.02, 1.07, told);
        check("original: creates/s, 64 by 4 KiB", rate(1, 0) / rate(0, 0), 0.50, 0.56, fixed);
        check("patched: creates/s, 64 by 4 KiB", rate(1, 1) / rate(0, 1), 0.58, 0.66, told);
        let gain = |size: usize| 1.0 - nanos[size][1][1] / nanos[size][0][1];
        check("64 KiB: unlinks take less by", gain(1), 0.04, 0.09, told);
        check("4 KiB: unlinks take less by", gain(0), 0.02, 0.05, told);
        let best = rate(1, 3) / rate(1, 1);
        check("64 KiB: creates/s, ours by patched", best, 1.0, f64::INFINITY, told);
    }

    fn measured_checks(&self, checks: &mut Vec<Check>) {
        let mut check = |title: &str, value: f64, low: f64, high: f64| {
            checks.push(Check { title: title.to_owned(), value, low, high, role: Role::Measured });
        };
        for (debug, words) in [(true, "with"), (false, "without")] {
            let Some(shares) = [0, 1, 3].map(|way| self.shares(way, debug)).into_iter().collect()
            else {
                continue;
            };
            let shares: Vec<[f64; 3]> = shares;
            let title = |way: &str| format!("64 KiB {words} debug checks: % in bits, {way}");
            check(&title("bitwise"), shares[0][0], 10.0, 100.0);
            check(&title("contiguous"), shares[1][0], 0.0, 1.5);
            check(&title("ours"), shares[2][0], 0.0, 1.5);
        }
        if let (Some(small), Some(large)) = (self.cell(false, false), self.cell(true, false)) {
            let ratio = small.cpu[0][3] / large.cpu[0][3];
            check("ours: creates in a CPU second, 64 by 4 KiB", ratio, 0.9, f64::INFINITY);
            let ratio = small.cpu[0][1] / large.cpu[0][1];
            check("contiguous: creates in a CPU second, 64 by 4 KiB", ratio, 0.0, f64::INFINITY);
        }
    }
}
