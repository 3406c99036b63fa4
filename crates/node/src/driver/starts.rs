//! Instances start: when the worker asks for it, when what they waited for is here, and again when a
//! start has failed.

use super::Driver;
use crate::executor::{Started, initial_inputs};
use e3_collections::State;
use e3_model::ShardKey;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

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
        self.repeat_starts();
    }

    /// Starts the instance of a shard. If its code is not here yet, its messages wait.
    pub(super) fn start(&mut self, key: ShardKey, state: Rc<RefCell<State>>) {
        let plan = self.worker.plan().clone();
        let started = self
            .executor
            .start(key, state.clone(), &plan, &self.supplies);
        let waits = started == Ok(Started::Waits);
        self.worker.handle_startable(self.clock.now(), key, !waits);
        let Err(reason) = started else {
            return self.failed.forget(key);
        };
        let inputs = initial_inputs(&plan, &self.supplies, key);
        if self
            .failed
            .note(Instant::now(), key, state, inputs, &reason)
        {
            tracing::error!("{}: does not start: {reason}", plan.shard_name(key));
        }
        self.worker.handle_start_failed(key, reason);
    }

    /// Drops the instance of a shard, which is not to start again.
    pub(super) fn stop(&mut self, key: ShardKey) {
        self.failed.forget(key);
        self.executor.stop(key);
    }

    /// Starts what did not start and may start now.
    pub(super) fn repeat_starts(&mut self) {
        let (plan, supplies) = (self.worker.plan(), &self.supplies);
        let inputs = |key| initial_inputs(plan, supplies, key);
        for (key, state) in self.failed.due(Instant::now(), inputs) {
            self.start(key, state);
        }
    }
}
