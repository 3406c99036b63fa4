//! Where the data path of a node is reached: a host behind SmartNICs that relay is reached through one
//! of them.
//!
//! A relay that is not heard carries nothing: its host is reached through the others, or directly.

use crate::state::{Control, Member};
use e3_model::topology::{Node, NodeRef};
use e3_model::{Address, NodeId, NodeKind};

impl Control {
    /// Where clients reach a node. None if it is no member.
    pub fn client_address(&self, id: NodeId) -> Option<Address> {
        let member = self.members.get(&id)?;
        let node = self.topology.node(id)?;
        Some(self.address_from_afar(&node, member, 0))
    }

    /// Where other servers reach a node. With several relays, `from` decides which of them.
    pub(crate) fn address_from_afar(
        &self,
        node: &NodeRef<'_>,
        member: &Member,
        from: usize,
    ) -> Address {
        let relays = self.relays_of(node);
        match relays.len() {
            0 => member.address,
            count => relays[(from + usize::from(node.id.0)) % count],
        }
    }

    /// Where the relays of a host listen for its traffic, those that are heard.
    pub(crate) fn relays_of(&self, host: &NodeRef<'_>) -> Vec<Address> {
        if host.node.kind != NodeKind::Host {
            return Vec::new();
        }
        let relays = of_its_server(host).filter(|(_, n)| n.relay);
        let members = relays.filter_map(|(id, _)| self.members.get(&id));
        members.filter(|m| m.up).filter_map(|m| m.relay).collect()
    }

    /// Where the host listens whose traffic the node relays.
    pub(crate) fn host_behind(&self, relay: &NodeRef<'_>) -> Option<Address> {
        if !relay.node.relay {
            return None;
        }
        let (host, _) = of_its_server(relay).find(|(_, n)| n.kind == NodeKind::Host)?;
        Some(self.members.get(&host)?.address)
    }
}

/// The nodes of a node's server: ids follow each other there.
fn of_its_server<'a>(node: &NodeRef<'a>) -> impl Iterator<Item = (NodeId, &'a Node)> + use<'a> {
    let nodes = &node.in_server.nodes;
    let at = nodes.iter().position(|n| n.name == node.node.name);
    let first = node.id.0 - at.unwrap_or_default() as u16;
    (first..).map(NodeId).zip(nodes)
}
