//! Work at several places, as the tools of coreutils take several files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::app::App;
use crate::glob;
use crate::out::is_closed_pipe;
use crate::session::{Session, close, open};
use crate::target::{Target, TargetPath};

/// Runs `work` at each of these places, wildcards expanded, each target mounted once, as the tools
/// of coreutils do it: what fails is reported, and the rest goes on. The answer is failure if
/// anything failed, or if `work` answered false.
///
/// # Errors
/// An argument that is no place; the output is closed.
pub fn each(
    app: &mut App,
    places: &[OsString],
    write: bool,
    mut work: impl FnMut(&mut App, &Session, &TargetPath) -> Result<bool>,
) -> Result<ExitCode> {
    let places: Vec<TargetPath> =
        places.iter().map(|place| TargetPath::parse(place)).collect::<Result<_>>()?;
    let mut sessions: Vec<(Target, Option<Session>)> = Vec::new();
    let (mut good, mut closed_pipe) = (true, None);
    for place in &places {
        let known = sessions.iter().position(|(target, _)| *target == place.target);
        let index = known.unwrap_or_else(|| {
            let opened = open(app, &place.target, write);
            let opened = opened.map_err(|error| app.out.problem(format!("{error:#}"))).ok();
            sessions.push((place.target.clone(), opened));
            sessions.len() - 1
        });
        let Some(session) = &sessions[index].1 else {
            good = false;
            continue;
        };
        for place in glob::places(app, session, place) {
            match work(app, session, &place) {
                Ok(done) => good &= done,
                Err(error) if is_closed_pipe(&error) => closed_pipe = Some(error),
                Err(error) => {
                    app.out.problem(format!("{error:#}"));
                    good = false;
                }
            }
            if closed_pipe.is_some() {
                break;
            }
        }
        if closed_pipe.is_some() {
            break;
        }
    }
    for session in sessions.into_iter().filter_map(|(_, session)| session) {
        if let Err(error) = close(app, session) {
            app.out.problem(format!("{error:#}"));
            good = false;
        }
    }
    match closed_pipe {
        Some(error) => Err(error),
        None => Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}
