//! Instances start: when the worker asks for it, when what they waited for is here, and again when a
//! start has failed.

use super::Driver;
use crate::executor::Started;
use e3_collections::State;
use e3_model::ShardKey;
use std::cell::RefCell;
use std::rc::Rc;

impl Driver {
    /// Plan or supplies are new: starts what waited for them, and looks for what is outdated.
    pub(super) fn bring_up_to_date(&mut self) {
        let plan = self.worker.plan().clone();
        self.executor.handle_plan(&plan, &self.supplies);
        for (key, waiting) in self.executor.take_waiting() {
            self.start(key, waiting.state);
            for invocation in waiting.invocations {
                self.submit(key, invocation);
            }
        }
        self.start_failed();
    }

    /// Starts the instance of a shard. If its code is not here yet, its messages wait.
    pub(super) fn start(&mut self, key: ShardKey, state: Rc<RefCell<State>>) {
        let plan = self.worker.plan().clone();
        let started = self.executor.start(key, state, &plan, &self.supplies);
        let waits = started == Ok(Started::Waits);
        self.worker.handle_startable(self.clock.now(), key, !waits);
        if let Err(e) = started {
            self.worker.handle_start_failed(key, e);
        }
    }

    /// Starts what did not start and may start now.
    pub(super) fn start_failed(&mut self) {
        let due = self.executor.due(self.worker.plan(), &self.supplies);
        for (key, state) in due {
            self.start(key, state);
        }
    }
}
