// SPDX-License-Identifier: MIT
//! Long calls: the engine works on its own thread with the GIL released, while this one shows
//! progress and notices Ctrl-C.

use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::LazyLock;
use std::time::Duration;

use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use flagfinder_failure::Failure;

use crate::errors::raise;

/// How long Ctrl-C may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(50);

enum Message<P, T> {
    Progress(P),
    Done(T),
}

/// Where the work reports how far it is. Never blocks.
pub struct Reporter<P, T>(Sender<Message<P, T>>);

impl<P, T> Reporter<P, T> {
    /// A receiver that is gone was interrupted; the result will not be looked at either.
    pub fn report(&self, progress: P) {
        let _ = self.0.send(Message::Progress(progress));
    }
}

/// Runs `work` to its end, or until Ctrl-C raises KeyboardInterrupt here. Interrupted work goes on
/// unseen until it is done: it only reads, and the process usually ends.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    wait_with_progress(py, |()| Ok(()), move |_reporter| work())
}

/// As [`wait`]; `show` runs on the calling thread for each progress, and may raise to give up.
pub fn wait_with_progress<P: Send + 'static, T: Send + 'static>(
    py: Python<'_>,
    mut show: impl FnMut(P) -> PyResult<()>,
    work: impl FnOnce(&Reporter<P, T>) -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    std::thread::Builder::new().spawn(move || {
        let reporter = Reporter(sender);
        let result = work(&reporter);
        let _ = reporter.0.send(Message::Done(result));
    })?;
    loop {
        let message;
        (receiver, message) = py.detach(move || next(receiver));
        match message {
            Ok(Message::Done(result)) => return Ok(result),
            Ok(Message::Progress(progress)) => show(progress)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(raise(engine_failed())),
        }
        py.check_signals()?;
    }
}

/// What rayon does part by part, for which it panics where no thread may be started (pids.max):
/// this thread does all of it then.
pub fn in_parts<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static POOL: LazyLock<Option<ThreadPool>> =
        LazyLock::new(|| ThreadPoolBuilder::new().build().ok());
    if let Some(pool) = &*POOL {
        return pool.install(work);
    }
    let alone = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    // An error: this thread is the only one of a pool since before. It stays so to its end.
    std::mem::forget(alone.build());
    work()
}

fn next<M>(receiver: Receiver<M>) -> (Receiver<M>, Result<M, RecvTimeoutError>) {
    let message = receiver.recv_timeout(PATIENCE);
    (receiver, message)
}

/// The worker ended without a result: it panicked, and its message is on stderr.
fn engine_failed() -> Failure {
    Failure::usage(
        "The engine failed",
        "an internal check did not hold; its message is above",
        "Please report it with the trace. `flagfinder trace check FILE` tells whether the trace is \
         sound.",
        "Other traces are unaffected.",
    )
}
