//! The driver's loop of a node.

use super::Cluster;
use e3_dataplane::Output;
use e3_invocation::{Completion, Failed, Outcome as Run};

impl Cluster {
    /// Has a node do what it can now.
    pub fn drain(&mut self, id: u32) {
        let now = self.clock(id);
        let node = self.nodes.get_mut(&id).expect("it runs");
        loop {
            let mut sent = 0;
            node.worker.handle_tick(now);
            node.worker.validate();
            while let Some(output) = node.worker.poll_output() {
                match output {
                    Output::Send { to, bytes } => {
                        sent += bytes.len();
                        *self.sent_to.entry(to).or_default() += bytes.len();
                        self.wire.push((Some(id), to, bytes));
                    }
                    Output::Relay { to, bytes, .. } => self.relayed.push((to, bytes)),
                    Output::Answer { id, reply, .. } => self.answers.push((id, reply)),
                    Output::Http(ask) => self.http.push((id, ask)),
                    Output::HttpCancel { ticket } => {
                        self.http
                            .retain(|(node, ask)| (*node, ask.ticket) != (id, ticket));
                        self.cancelled.push((id, ticket));
                    }
                    Output::Start { key, state } => {
                        node.states.insert(key, state);
                    }
                    Output::Stop { key } => {
                        node.states.remove(&key);
                        node.waiting.retain(|(k, _)| *k != key);
                        node.calling.stop(key);
                    }
                    Output::Discard { state } => {
                        self.discarded.push((id, state.borrow().memory_bytes()));
                    }
                    Output::Execute { key, invocation } => node.waiting.push((key, invocation)),
                    Output::CallAnswer {
                        key,
                        awaited,
                        answer,
                    } => {
                        let run = node.calling.on_answer(key, awaited, answer, &self.called);
                        node.waiting.extend(run);
                    }
                    Output::Journal { number, record } => {
                        self.disks.entry(id).or_default().append(number, record);
                    }
                    Output::Export {
                        key,
                        number,
                        offset,
                        bytes,
                    } => {
                        let part = self.exports.entry((number, key)).or_default();
                        assert_eq!(offset, part.len() as u64, "{key}: a gap");
                        part.extend(bytes);
                        let len = part.len() as u64;
                        node.worker.handle_exported(now, key, number, len);
                    }
                    Output::Fetch { key, order, .. } => self.fetches.push((id, key, order)),
                    Output::TrimJournal { before } => {
                        self.disks.entry(id).or_default().trim(before);
                    }
                }
            }
            self.most_sent = self.most_sent.max(sent);
            let runs = node.waiting.len().min(node.budget);
            if node.held || runs == 0 {
                return;
            }
            node.budget -= runs;
            for (key, invocation) in node.waiting.drain(..runs).collect::<Vec<_>>() {
                let Some(state) = node.states.get(&key) else {
                    continue;
                };
                let (worker, at) = (&mut node.worker, (now, key));
                let id_of_request = invocation.id.request;
                let run = node.calling.begin(worker, at, invocation, &mut self.caller);
                let Some(invocation) = run else { continue };
                let handler = match &mut self.other {
                    Some((other, handler)) if other.id == key.app => handler,
                    _ => &mut self.handler,
                };
                let done = handler(key.service, &invocation, &mut state.borrow_mut());
                let token = invocation.token;
                let outcome = match done {
                    Ok(effects) => Run::Completed(effects),
                    Err(error) => Run::Failed(Box::new(Failed { error, invocation })),
                };
                let busy = (self.busy)(id_of_request);
                let done = Completion {
                    token,
                    outcome,
                    busy,
                };
                node.worker.handle_completion(now, key, done);
            }
        }
    }
}
