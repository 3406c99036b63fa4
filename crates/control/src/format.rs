//! The cluster's active format: what its processes write to each other and to their disks. A node whose
//! program does not have it is refused, so it can be raised when every member has the newer one.
//! Design: docs/design/019.

use crate::command::{Applied, CommandError, Genesis};
use crate::state::Control;
use e3_model::Format;

impl Control {
    /// The state of the cluster that the first record of a log founds.
    pub fn founded(genesis: Genesis) -> Control {
        let Genesis::Init {
            cluster,
            topology,
            format,
            release,
        } = genesis;
        let mut control = Control::new(cluster, topology);
        (control.format, control.format_release) = (format, release);
        control
    }

    /// Refuses what the log of the active format does not have.
    pub(crate) fn check_format(
        &self,
        needed: Format,
        what: &'static str,
    ) -> Result<(), CommandError> {
        if self.format >= needed {
            Ok(())
        } else {
            Err(CommandError::OlderFormat {
                what,
                needed,
                active: self.format,
            })
        }
    }

    /// Makes a newer format the active one. A silent process may return, and one that is gone may
    /// have left a journal, so every node that ever joined must have it.
    pub(crate) fn raise_format(
        &mut self,
        to: Format,
        release: &str,
    ) -> Result<Applied, CommandError> {
        if to <= self.format {
            return Ok(Applied::Nothing);
        }
        for (id, member) in &self.members {
            let node = self.node_name(*id);
            if !member.formats.include(to) {
                return Err(CommandError::OlderMember {
                    to,
                    node,
                    release: member.release.clone(),
                    formats: member.formats,
                });
            }
            if !member.up {
                return Err(CommandError::SilentMember { to, node });
            }
        }
        self.format = to;
        self.format_release = release.to_string();
        // Placement goes by the format.
        self.index.cell.take();
        Ok(Applied::Changed)
    }
}
