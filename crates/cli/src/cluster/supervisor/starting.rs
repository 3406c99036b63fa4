//! The start of all processes, up to the moment when every node has joined.

use super::{CONTROLLER, Exited, Supervisor, was_ended};
use crate::cluster::watch::Event;
use crate::limits::{CONNECT_INTERVAL, POLL_INTERVAL, UNHEALTHY_TIMEOUT, UP_TIMEOUT};
use crate::ui::failure::{Exit, Failure};
use e3_model::api::NodeView;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::{Duration, Instant};

impl Supervisor {
    /// Starts the controller, and the nodes that it names.
    pub(super) fn start_all(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let deadline = begin + UP_TIMEOUT;
        let port = self.cluster.port.to_string();
        let (token, node_token) = (self.state.token_file(), self.state.node_token_file());
        let more = [
            ("--port", port.as_ref()),
            ("--token-file", token.as_ref()),
            ("--node-token-file", node_token.as_ref()),
        ];
        self.spawn(CONTROLLER, self.arguments("controller-run", &more))?;
        while TcpStream::connect(("127.0.0.1", self.cluster.port)).is_err() {
            self.wait_at_start(CONNECT_INTERVAL, false)?;
            self.check_time(deadline)?;
        }
        // The controller may still report the nodes of an earlier run, whose processes are gone.
        let before = loop {
            match self.client.nodes() {
                Ok(all) => break all,
                Err(_) => {
                    self.wait_at_start(POLL_INTERVAL, false)?;
                    self.check_time(deadline)?;
                }
            }
        };
        // Its log says which nodes there are, however the cluster began.
        self.cluster.nodes = before.iter().map(|n| n.name.clone()).collect();
        for node in &before {
            self.start_node(&node.name)?;
        }
        let is_new = |n: &NodeView| {
            let old = before.iter().find(|b| b.name == n.name);
            n.up && old.is_none_or(|b| n.incarnation > b.incarnation)
        };
        let has_run = before.iter().any(|n| n.incarnation > 0);
        let then = match self.cluster.no_restart {
            true => "it is not started again (--no-restart)",
            false => "it is started again",
        };
        let mut failed = BTreeMap::new();
        loop {
            let is_over = |n: &NodeView| is_new(n) || failed.contains_key(&n.name);
            // Nodes that are added meanwhile are started afterwards.
            let is_awaited = |n: &&NodeView| before.iter().any(|b| b.name == n.name);
            match self.client.nodes() {
                // A node that reads much state may take longer.
                Ok(all)
                    if all.iter().filter(is_awaited).all(is_over)
                        || has_run && Instant::now() >= deadline =>
                {
                    failed.retain(|name, _| !all.iter().any(|n| n.name == *name && is_new(n)));
                    for late in all.iter().filter(is_awaited).filter(|n| !is_new(n)) {
                        let (name, seconds) = (&late.name, UP_TIMEOUT.as_secs());
                        let why = || format!("{name} is still starting after {seconds} s");
                        failed.entry(name.clone()).or_insert_with(why);
                    }
                    break;
                }
                Ok(_) if begin.elapsed() > UNHEALTHY_TIMEOUT => match self.client.health() {
                    // It is the controller that says so, and not that it has just gone away.
                    Err(failure) if self.client.nodes().is_ok() => {
                        let message = format!("no node can join: {}", failure.message);
                        return Err(Failure::new(failure.exit, message));
                    }
                    _ => {}
                },
                _ => {}
            }
            self.check_time(deadline)?;
            let exited = self.wait_at_start(POLL_INTERVAL / 2, has_run)?;
            let exited = exited.into_iter();
            failed.extend(exited.map(|(name, why)| (name, format!("{why}; {then}"))));
        }
        self.cluster.not_started = failed.into_values().collect();
        self.cluster.ready = true;
        self.state.write_cluster(&self.cluster)
    }

    /// Waits for a moment, then restarts what has exited; fails if a process has exited that may not, or a signal
    /// has arrived. Returns the nodes that the start need not wait for, with the reasons.
    fn wait_at_start(
        &mut self,
        pause: Duration,
        nodes_may_exit: bool,
    ) -> Result<Vec<(String, String)>, Failure> {
        let event = self.events.recv_timeout(pause);
        if let Ok(Event::Signal(SIGTERM | SIGINT | SIGHUP)) = event {
            return Err(Failure::new(Exit::Unexpected, "interrupted while starting"));
        }
        self.lock.check()?;
        let mut spare = Vec::new();
        for exited in self.reap() {
            let is_spare = nodes_may_exit && exited.name != CONTROLLER;
            let is_restarted = was_ended(exited.status) && !self.cluster.no_restart;
            let failure = self.start_failure(&exited);
            if !is_spare && !is_restarted {
                return Err(failure);
            }
            self.restart_later(&exited);
            if is_spare {
                spare.push((exited.name, failure.message));
            }
        }
        self.restart_due();
        Ok(spare)
    }

    fn check_time(&self, deadline: Instant) -> Result<(), Failure> {
        if Instant::now() < deadline {
            return Ok(());
        }
        let down = match self.client.nodes() {
            Ok(all) => {
                let down: Vec<String> = all.into_iter().filter(|n| !n.up).map(|n| n.name).collect();
                down.join(", ")
            }
            Err(e) => e.message,
        };
        let seconds = UP_TIMEOUT.as_secs();
        let message = format!("the cluster is not ready after {seconds} s; not up: {down}");
        Err(Failure::new(Exit::Timeout, message).hint("see: e3 logs"))
    }

    fn start_failure(&self, exited: &Exited) -> Failure {
        let process = self.processes.iter().find(|p| p.name == exited.name);
        let process = process.expect("what has exited is managed");
        process.start_failure(&self.state, exited.status)
    }
}
