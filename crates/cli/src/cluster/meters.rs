//! Which energy meters a node reads, as given on the command line or in the environment.

use crate::ui::failure::{Exit, Failure};
use clap::Args;
use e3_energy::redfish::RedfishConfig;
use e3_energy::{Choice, MeterConfig, SYSFS};
use std::path::PathBuf;

/// Energy meters. Nodes that `e3 up` starts inherit the environment.
#[derive(Args, Debug, Clone, Default)]
pub struct Meters {
    /// Energy meters to read: auto, off, rapl, bluefield, ipmi, redfish, or names that e3 doctor lists
    #[arg(
        id = "meter",
        long = "meter",
        env = "E3_METER",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub names: Vec<String>,
    /// Management controller of the server, such as https://bmc-7, for Redfish
    #[arg(long, env = "E3_METER_URL", value_name = "URL")]
    pub meter_url: Option<String>,
    /// User of the management controller
    #[arg(long, env = "E3_METER_USER", value_name = "NAME")]
    pub meter_user: Option<String>,
    /// File that holds its password
    #[arg(long, env = "E3_METER_PASSWORD_FILE", value_name = "FILE")]
    pub meter_password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust for the management controller
    #[arg(long, env = "E3_METER_CA_FILE", value_name = "FILE")]
    pub meter_ca_file: Option<PathBuf>,
    /// Directory where sysfs is mounted [default: /sys]
    #[arg(long, env = "E3_SYSFS", value_name = "DIR")]
    pub sysfs: Option<PathBuf>,
}

impl Meters {
    /// The settings, checked as far as that is possible without reading a meter.
    pub fn config(&self) -> Result<MeterConfig, Failure> {
        let refuse = |e: &dyn std::fmt::Display| Failure::new(Exit::Input, e.to_string());
        let redfish = match (&self.meter_url, &self.meter_user, &self.meter_password_file) {
            (None, None, None) => None,
            (Some(url), Some(user), Some(password_file)) => Some(RedfishConfig {
                url: url.clone(),
                user: user.clone(),
                password_file: password_file.clone(),
                ca_file: self.meter_ca_file.clone(),
            }),
            _ => {
                let text = "--meter-url, --meter-user and --meter-password-file go together";
                return Err(refuse(&text));
            }
        };
        let config = MeterConfig {
            sysfs: self.sysfs.clone().unwrap_or_else(|| SYSFS.into()),
            choice: Choice::parse(&self.names).map_err(|e| refuse(&e))?,
            redfish,
        };
        config.validate().map_err(|e| refuse(&e))?;
        Ok(config)
    }
}
