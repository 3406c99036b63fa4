//! Power caps of servers and racks, which operators set at run time. Placement counts the lower of a cap and
//! the topology's budget; the orchestrator moves instances away from what draws more (`orchestrator`).
//! Design: docs/design/022.

use crate::command::{Applied, CommandError};
use crate::state::Control;
use e3_model::power::CAP_W_MAX;
use e3_model::{Format, PowerDomain};

/// What older logs do not have.
const CAPS: &str = "power caps";

impl Control {
    /// Sets a cap, or removes it.
    pub(crate) fn set_power_cap(
        &mut self,
        domain: &PowerDomain,
        cap_w: Option<u32>,
    ) -> Result<Applied, CommandError> {
        self.check_format(Format::POWER_CAPS, CAPS)?;
        let racks = || self.topology.spec.racks.iter();
        let known: Vec<String> = match domain {
            PowerDomain::Server(_) => racks()
                .flat_map(|r| &r.servers)
                .map(|s| s.name.clone())
                .collect(),
            PowerDomain::Rack(_) => racks().map(|r| r.name.clone()).collect(),
        };
        if !known.iter().any(|name| name == domain.name()) {
            let domain = domain.clone();
            return Err(CommandError::NoPowerDomain { domain, known });
        }
        if let Some(cap_w) = cap_w.filter(|w| !(1..=CAP_W_MAX).contains(w)) {
            let domain = domain.clone();
            return Err(CommandError::PowerCap { domain, cap_w });
        }
        if self.power_caps.of(domain) == cap_w {
            return Ok(Applied::Nothing);
        }
        self.power_caps.set(domain, cap_w);
        Ok(Applied::Changed)
    }
}
