//! Runs `nfs-partial` and prints its report; with `--document` only the document's own cells.

use lab::experiment::Size;
use lab::nfs_partial::{Cell, Image, MACHINE, run, run_cell};

fn main() -> Result<(), String> {
    let given = |name: &str| std::env::args().any(|arg| arg == name);
    if given("--document") {
        let profile = model::Profile::load(MACHINE).map_err(|error| error.to_string())?;
        let cell = Cell::plain(200 << 20);
        let image = Image::make(cell.total_size)?;
        for (name, mode) in nfs::Mode::ALL {
            let outcome = run_cell(&profile, &image, &Cell { mode, ..cell.clone() }, 1)?;
            println!("{name}: {outcome:?}");
        }
        return Ok(());
    }
    let size = if given("--full") { Size::Full } else { Size::Quick };
    let report = run(size, 1, &|title, mode, outcome| {
        eprintln!("{title} {mode:?} {:.1} s", outcome.total);
    })?;
    println!("{}", report.markdown());
    Ok(())
}
