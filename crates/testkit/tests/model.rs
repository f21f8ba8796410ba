//! The model against the reference itself: it must agree with itself, and notice what is wrong.

use std::sync::Arc;

use rt::Cx;
use testkit::memfs::MemFs;
use testkit::model::{self, Config, Subject};
use vfs::FileSystem;

struct Same(Arc<MemFs>);

impl Subject for Same {
    fn mount(&mut self, cx: &mut Cx) -> Arc<dyn FileSystem> {
        self.0.remount(cx);
        self.0.clone()
    }

    fn inspect(&mut self, _cx: &mut Cx) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn the_reference_agrees_with_itself() {
    model::check_seeds(1, 20, Config::new, |_, _| Same(Arc::new(MemFs::new())));
    model::check_seeds(1, 10, Config::many, |_, _| Same(Arc::new(MemFs::new())));
}

/// Loses a file at the second mount.
struct Forgetful(Arc<MemFs>, u32);

impl Subject for Forgetful {
    fn mount(&mut self, cx: &mut Cx) -> Arc<dyn FileSystem> {
        self.0.remount(cx);
        self.1 += 1;
        if self.1 == 2 {
            let root = self.0.root();
            self.0.unlink(cx, root, b"shared-file-0").expect("the model made it");
        }
        self.0.clone()
    }

    fn inspect(&mut self, _cx: &mut Cx) -> Result<(), String> {
        Ok(())
    }
}

#[test]
#[should_panic(expected = "model of seed 5 failed: the tree before unmount and after mount 1")]
fn a_lost_file_is_noticed() {
    model::check(&Config::new(5), |_| Forgetful(Arc::new(MemFs::new()), 0));
}
