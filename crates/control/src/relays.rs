//! Where the data path of a node is reached: a host behind SmartNICs that relay is reached through one
//! of them.
//!
//! A relay that is not heard carries nothing: its host is reached through the others, or directly.

use crate::index::Index;
use crate::state::{Control, Member};
use e3_model::{Address, NodeId};

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
        let relays = self.relays_of(index, node);
        match relays.len() {
            0 => member.address,
            count => relays[(from + node.index()) % count],
        }
    }

    /// Where the relays of a host listen for its traffic, those that are heard.
    pub(crate) fn relays_of(&self, index: &Index, host: NodeId) -> Vec<Address> {
        let relays = index.relays.get(&host).into_iter().flatten();
        let members = relays.filter_map(|id| self.members.get(id));
        members.filter(|m| m.up).filter_map(|m| m.relay).collect()
    }

    /// Where the host listens whose traffic the node relays.
    pub(crate) fn host_behind(&self, index: &Index, relay: NodeId) -> Option<Address> {
        let mut hosts = index.relays.iter();
        let (host, _) = hosts.find(|(_, relays)| relays.contains(&relay))?;
        Some(self.members.get(host)?.address)
    }
}
