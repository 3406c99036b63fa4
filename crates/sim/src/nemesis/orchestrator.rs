//! The orchestrator in the controller's process: heartbeats and reports feed it, and its decisions are
//! stored like all others.

use super::Run;
use super::controller::ControllerProcess;
use e3_control::{Command, InstanceLoad};
use e3_model::orchestrator::OrchestratorSettings;
use e3_model::{NodeId, Timestamp};

impl ControllerProcess {
    /// Takes the loads of a node's instances.
    pub(super) fn on_loads(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: u32,
        loads: Vec<InstanceLoad>,
    ) {
        let datagrams = now.0;
        let loads = loads.into_iter();
        self.orchestrator
            .on_report(now, node, incarnation, datagrams, loads);
    }

    /// Executes what is decided.
    pub(super) fn orchestrate(&mut self, now: Timestamp) {
        if !self.can_decide(now) {
            return;
        }
        for command in self.orchestrator.decide(now, &self.control) {
            let is_move = matches!(&command, Command::Orchestrate(d) if d.to.is_some());
            if self.execute(now, &command).is_some() && is_move {
                self.orchestrated += 1;
            }
        }
    }
}

impl Run<'_> {
    /// The orchestrator is as quick as the scenario.
    pub(super) fn begin_to_orchestrate(&mut self) {
        if !self.scenario.has_starvation() {
            return;
        }
        let at = self.cluster.now;
        let settings = OrchestratorSettings {
            starvation_heartbeats: 5,
            node_cooldown_s: 1,
            instance_cooldown_s: 1,
            cooldown_s_max: 2,
            ..OrchestratorSettings::default()
        };
        let set = Command::SetOrchestrator { settings, at };
        self.controller.execute(at, &set);
    }
}
