//! Where the data path of a node is reached: a host behind SmartNICs that relay is reached through one
//! of them.
//!
//! A relay that is not heard carries nothing: its host is reached through the others, or directly.

use crate::index::Index;
use crate::state::{Control, Member};
use crate::table::Table;
use e3_model::{Address, NodeId};

type Members = Table<NodeId, Member>;

impl Control {
    /// Where clients reach a node. None if it is no member.
    pub fn client_address(&self, id: NodeId) -> Option<Address> {
        let member = self.members.get(&id)?;
        Some(self.address_from_afar(&self.index(), id, member, 0))
    }

    /// Where other servers reach a node. With several relays, `from` decides which of them.
    pub(crate) fn address_from_afar(
        &self,
        index: &Index,
        node: NodeId,
        member: &Member,
        from: usize,
    ) -> Address {
        let relays = relays_of(&self.members, index, node);
        match relays.len() {
            0 => member.address,
            count => relays[(from + node.index()) % count],
        }
    }

    /// Whether the traffic of a node, or the traffic that it relays, takes the ways that it took with these
    /// members.
    pub(crate) fn is_relayed_as_before(
        &self,
        index: &Index,
        before: &Members,
        node: NodeId,
    ) -> bool {
        let ways = |members| {
            let host = host_behind(members, index, node);
            (relays_of(members, index, node), host)
        };
        ways(before) == ways(&self.members)
    }
}

/// Where the relays of a host listen for its traffic, those that are heard.
pub(crate) fn relays_of(members: &Members, index: &Index, host: NodeId) -> Vec<Address> {
    let relays = index.relays.get(&host).into_iter().flatten();
    let members = relays.filter_map(|id| members.get(id));
    members.filter(|m| m.up).filter_map(|m| m.relay).collect()
}

/// Where the host listens whose traffic the node relays.
pub(crate) fn host_behind(members: &Members, index: &Index, relay: NodeId) -> Option<Address> {
    Some(members.get(&relayed_host(index, relay)?)?.address)
}

/// The host whose traffic a node relays.
pub(crate) fn relayed_host(index: &Index, relay: NodeId) -> Option<NodeId> {
    index.cluster.get(relay)?;
    let mut nodes = index.cluster.server_of(relay).iter().copied();
    nodes.find(|host| index.relays.get(host).is_some_and(|r| r.contains(&relay)))
}
