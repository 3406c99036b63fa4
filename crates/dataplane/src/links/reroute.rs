//! Channels follow the shards: to other nodes, and to other shards when their number changes.

use super::{Links, Tag, is_of_app};
use crate::app::App;
use crate::ends::{EndId, Table};
use e3_channel::Sender;
use e3_model::ShardKey;
use e3_wire::frame::{Ends, Link};
use e3_wire::message::Message;
use std::rc::Rc;

/// What a channel has not delivered, in order.
type Messages = Vec<(Rc<[u8]>, Tag)>;

impl Links {
    /// Points the sending ends of an application to where their receivers are now, and brings the
    /// tables to its present shape. `before`: the application until now. What is not needed any more
    /// is not sent to another receiver.
    pub(crate) fn reroute(
        &mut self,
        before: Option<&App>,
        app: &App,
        mut is_needed: impl FnMut(&Tag) -> bool,
    ) {
        let id = app.plan.id;
        let astray = before.map_or_else(Vec::new, |before| self.take_astray(before, app));
        self.drop_senders(|l| l.app == id && app.sending_cell(&l.ends).is_none());
        self.drop_receivers(|l| l.app == id && app.receiving_cell(&l.ends).is_none());
        let mut moved = Vec::new();
        let mut table = Table::default();
        for (at, end) in self.senders.iter_mut() {
            if !is_of_app(&end.link, id) {
                continue;
            }
            if let Some(cell) = app.sending_cell(&end.link.ends) {
                table.set(cell, EndId::new(at));
            }
            if let Some(route) = app.route_of(&end.link.ends)
                && (end.to, end.link.to_incarnation) != (route.primary, route.incarnation)
            {
                end.to = route.primary;
                end.link.to_incarnation = route.incarnation;
                let epoch = end.sender.next_epoch();
                end.sender.restart_with(epoch, &mut is_needed);
            }
            // The node may be a new peer.
            moved.push(EndId::new(at));
        }
        self.sender_tables.insert(id, table);
        for end in moved {
            self.list(end);
        }
        let mut table = Table::default();
        for (at, end) in &self.receivers {
            if is_of_app(&end.link, id)
                && let Some(cell) = app.receiving_cell(&end.link.ends)
            {
                table.set(cell, EndId::new(at));
            }
        }
        self.receiver_tables.insert(id, table);
        for (link, messages) in astray {
            for (body, tag) in messages {
                self.send_to_slot(app, link, body, tag);
            }
        }
    }

    /// Takes the messages out of the channels to services whose number of shards has changed.
    fn take_astray(&mut self, before: &App, app: &App) -> Vec<(Link, Messages)> {
        let (id, mut astray) = (app.plan.id, Vec::new());
        let changed = |l: &Link| {
            is_of_app(l, id) && before.receiving_shards(&l.ends) != app.receiving_shards(&l.ends)
        };
        for (_, end) in self.senders.iter_mut() {
            if changed(&end.link) {
                let next = Sender::new(end.sender.next_epoch());
                let sender = std::mem::replace(&mut end.sender, next);
                self.retransmitted_before += sender.retransmitted();
                astray.push((end.link, sender.into_messages().collect()));
            }
        }
        astray
    }

    /// Sends a message to the shard that has its slot now.
    fn send_to_slot(&mut self, app: &App, link: Link, body: Rc<[u8]>, tag: Tag) {
        let Ok(message) = Message::decode(&body) else {
            return;
        };
        let Some((service, shards)) = app.receiving_shards(&link.ends) else {
            return;
        };
        let to = message.slot.shard(shards);
        let ends = match link.ends {
            Ends::Ingress { node, .. } => Ends::Ingress {
                node,
                service,
                shard: to,
            },
            Ends::Edge { edge, from, .. } => Ends::Edge { edge, from, to },
            Ends::Replication { .. } => return,
        };
        let route = app.route(ShardKey {
            app: link.app,
            service,
            shard: to,
        });
        let link = Link {
            ends,
            to_incarnation: route.incarnation,
            ..link
        };
        self.send(app, link, route.primary, body, tag);
    }
}
