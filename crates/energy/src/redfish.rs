//! Power of a server from its management controller over HTTP: DMTF's Redfish (DSP0266, DSP2046).
//!
//! A chassis shows its power in `EnvironmentMetrics`, in the older `Power`, or at the inputs of the
//! power supplies of its `PowerSubsystem`. The first of these that has a figure is read. The user's
//! password goes only to the host of the URL, over TLS: no redirect is followed.

use crate::limits::{BODY_LEN_MAX, CREDENTIAL_LEN_MAX, HTTP_MAX, MEMBERS_MAX};
use crate::meter::{About, Meter, MeterError, Reading, Step, plausible};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use e3_model::meter::MeterScope;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Name of the meter.
pub const NAME: &str = "redfish";
const ROOT: &str = "/redfish/v1";

/// Where a server's management controller is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedfishConfig {
    /// Such as `https://bmc-7`, or the URL of the chassis to read.
    pub url: String,
    /// User name.
    pub user: String,
    /// File that holds the password.
    pub password_file: PathBuf,
    /// Certificates, as PEM, of those who may sign the controller's. By default the usual ones.
    pub ca_file: Option<PathBuf>,
}

/// Why an address of a management controller cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// Not an address.
    #[error("meter URL {0:?} is not an address such as https://bmc-7")]
    NotAUrl(String),
    /// With a password, which logs would show.
    #[error(
        "the meter URL contains a user name or password; give --meter-user and --meter-password-file"
    )]
    Credentials,
    /// Anyone on the way could read the password.
    #[error("meter URL {0:?} must begin with https:// unless its host is this machine")]
    Plain(String),
    /// Not a chassis.
    #[error("path {0:?} of the meter URL must be empty or begin with /redfish/v1/Chassis/")]
    Path(String),
}

/// A chassis of a management controller.
pub struct Redfish {
    about: About,
    config: RedfishConfig,
    origin: String,
    chassis: Option<String>,
    source: Option<Source>,
    agent: Option<Agent>,
}

/// Where a chassis shows its power.
#[derive(Clone, Debug)]
enum Source {
    /// Path of its `EnvironmentMetrics`.
    Environment(String),
    /// Path of its `Power`.
    Power(String),
    /// Paths of the `Metrics` of its power supplies.
    Supplies(Vec<String>),
}

impl Redfish {
    /// A meter that connects when it is read.
    pub fn new(config: RedfishConfig) -> Result<Redfish, UrlError> {
        let (origin, host, chassis) = address(&config.url)?;
        Ok(Redfish {
            about: About {
                name: format!("{NAME}:{host}"),
                scope: MeterScope::Server,
                step: Step::Unknown,
                average_s: None,
            },
            config,
            origin,
            chassis,
            source: None,
            agent: None,
        })
    }

    fn error(&self, text: impl Into<String>) -> MeterError {
        MeterError::Answer {
            name: self.about.name.clone(),
            text: text.into(),
        }
    }

    fn get(&mut self, path: &str) -> Result<Value, MeterError> {
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.agent.insert(self.connect()?).clone(),
        };
        let password = read_file(&self.config.password_file)?;
        let password = password.strip_suffix('\n').unwrap_or(&password);
        let credentials = BASE64_STANDARD.encode(format!("{}:{password}", self.config.user));
        let request = agent
            .get(format!("{}{path}", self.origin))
            .header("authorization", format!("Basic {credentials}"))
            .header("accept", "application/json");
        let mut response = request.call().map_err(|e| self.failed(&e))?;
        let status = response.status().as_u16();
        match status {
            200 => {}
            401 | 403 => {
                return Err(MeterError::Refused {
                    name: self.about.name.clone(),
                    status,
                });
            }
            300..=399 => {
                let to = response.headers().get("location");
                let to = to.and_then(|l| l.to_str().ok()).unwrap_or_default();
                let to: String = to.chars().take(200).collect();
                return Err(self.error(format!(
                    "GET {path} redirects to {to:?}, which is not followed; give that URL"
                )));
            }
            _ => return Err(self.error(format!("GET {path}: status {status}"))),
        }
        let body = response.body_mut().with_config().limit(BODY_LEN_MAX);
        let body = body.read_to_vec().map_err(|e| self.failed(&e))?;
        serde_json::from_slice(&body)
            .map_err(|e| self.error(format!("GET {path}: the answer is not JSON: {e}")))
    }

    fn connect(&self) -> Result<Agent, MeterError> {
        let mut tls = TlsConfig::builder();
        if let Some(file) = &self.config.ca_file {
            let text = read_file(file)?;
            let items = parse_pem(text.as_bytes());
            let certificates: Result<Vec<_>, _> = items
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(c)) => Some(Ok(c)),
                    Ok(_) => None,
                    Err(e) => Some(Err(e)),
                })
                .collect();
            let certificates = certificates.ok().filter(|c| !c.is_empty());
            let certificates = certificates
                .ok_or_else(|| self.error(format!("{} holds no certificate", file.display())))?;
            tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates)));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(HTTP_MAX))
            .build();
        Ok(config.into())
    }

    fn failed(&self, error: &ureq::Error) -> MeterError {
        match error {
            ureq::Error::Timeout(_) => MeterError::TooSlow {
                name: self.about.name.clone(),
                limit: HTTP_MAX,
            },
            _ => self.error(error.to_string()),
        }
    }

    /// The path that a member of `value` links to; none without the member.
    fn link(&self, value: &Value, member: &str) -> Result<Option<String>, MeterError> {
        let Some(path) = value.pointer(&format!("{member}/@odata.id")) else {
            return Ok(None);
        };
        match path.as_str() {
            Some(path) if path.starts_with(&format!("{ROOT}/")) => Ok(Some(path.to_string())),
            _ => Err(self.error(format!("link {path} does not lead to {ROOT}"))),
        }
    }

    fn members(&mut self, collection: &str) -> Result<Vec<String>, MeterError> {
        let value = self.get(collection)?;
        let Some(members) = value.get("Members").and_then(Value::as_array) else {
            return Err(self.error(format!("{collection} has no array Members")));
        };
        let members = members.iter().take(MEMBERS_MAX);
        let links = members.filter_map(|m| self.link(m, "").transpose());
        links.collect()
    }

    /// The chassis to read, and where it shows its power.
    fn find(&mut self) -> Result<Source, MeterError> {
        if let Some(path) = self.chassis.clone() {
            let chassis = self.get(&path)?;
            let source = self.source_of(&chassis)?;
            return source.ok_or_else(|| self.error(format!("{path} shows no power")));
        }
        let mut found: Vec<(bool, String, Source)> = Vec::new();
        for path in self.members(&format!("{ROOT}/Chassis"))? {
            let chassis = self.get(&path)?;
            let systems = chassis.pointer("/Links/ComputerSystems");
            let has_system = systems.and_then(Value::as_array);
            let has_system = has_system.is_some_and(|s| !s.is_empty());
            if let Some(source) = self.source_of(&chassis)? {
                found.push((has_system, path, source));
            }
        }
        // A rack or a power shelf around the server shows its own power.
        if found.iter().any(|(has_system, ..)| *has_system) {
            found.retain(|(has_system, ..)| *has_system);
        }
        match found.len() {
            0 => Err(self.error("no chassis shows its power")),
            1 => Ok(found.remove(0).2),
            _ => {
                let paths: Vec<_> = found.into_iter().map(|(_, path, _)| path).collect();
                Err(self.error(format!(
                    "several chassis show power: {}; give the URL of one of them",
                    paths.join(", ")
                )))
            }
        }
    }

    fn source_of(&mut self, chassis: &Value) -> Result<Option<Source>, MeterError> {
        if let Some(path) = self.link(chassis, "/EnvironmentMetrics")? {
            let source = Source::Environment(path);
            if self.has_figure(&source)? {
                return Ok(Some(source));
            }
        }
        if let Some(path) = self.link(chassis, "/Power")? {
            let source = Source::Power(path);
            if self.has_figure(&source)? {
                return Ok(Some(source));
            }
        }
        let Some(path) = self.link(chassis, "/PowerSubsystem")? else {
            return Ok(None);
        };
        let subsystem = self.get(&path)?;
        let Some(path) = self.link(&subsystem, "/PowerSupplies")? else {
            return Ok(None);
        };
        let mut metrics = Vec::new();
        for supply in self.members(&path)? {
            let supply = self.get(&supply)?;
            metrics.extend(self.link(&supply, "/Metrics")?);
        }
        Ok((!metrics.is_empty()).then_some(Source::Supplies(metrics)))
    }

    /// Whether a document that may lack a figure has one. A figure of a wrong type is an error.
    fn has_figure(&mut self, source: &Source) -> Result<bool, MeterError> {
        Ok(self.figures(source)?.iter().all(Option::is_some))
    }

    fn figures(&mut self, source: &Source) -> Result<Vec<Option<f64>>, MeterError> {
        let (paths, member) = match source {
            Source::Environment(path) => (std::slice::from_ref(path), "/PowerWatts/Reading"),
            Source::Power(path) => (
                std::slice::from_ref(path),
                "/PowerControl/0/PowerConsumedWatts",
            ),
            Source::Supplies(paths) => (&paths[..], "/InputPowerWatts/Reading"),
        };
        let mut figures = Vec::new();
        for path in paths {
            let value = self.get(path)?;
            figures.push(match value.pointer(member) {
                None | Some(Value::Null) => None,
                Some(Value::Number(watts)) => watts.as_f64(),
                Some(other) => {
                    let other: String = other.to_string().chars().take(64).collect();
                    let text = format!("{path}: {member} is {other}, must be a number");
                    return Err(self.error(text));
                }
            });
        }
        Ok(figures)
    }

    fn power(&mut self) -> Result<Reading, MeterError> {
        let source = match &self.source {
            Some(source) => source.clone(),
            None => self.find()?,
        };
        let figures: Option<Vec<f64>> = self.figures(&source)?.into_iter().collect();
        // A sum without one of the power supplies would be too low.
        let figures = figures.ok_or_else(|| self.error("shows no power at present"))?;
        self.source = Some(source);
        plausible(&self.about.name, figures.iter().sum())
    }
}

impl Meter for Redfish {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        let reading = self.power();
        if reading.is_err() {
            // The controller may have been updated or replaced, and its certificate renewed.
            (self.source, self.agent) = (None, None);
        }
        reading
    }
}

/// Origin, host and chassis of a URL.
fn address(url: &str) -> Result<(String, String, Option<String>), UrlError> {
    let wrong = || UrlError::NotAUrl(url.to_string());
    if url.contains('@') {
        return Err(UrlError::Credentials);
    }
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong());
    };
    let host = authority.host();
    match scheme {
        "https" => {}
        "http" if ["127.0.0.1", "[::1]", "localhost"].contains(&host) => {}
        "http" => return Err(UrlError::Plain(url.to_string())),
        _ => return Err(wrong()),
    }
    let path = uri.path().trim_end_matches('/');
    let chassis = match path {
        "" | ROOT => None,
        path if path.starts_with(&format!("{ROOT}/Chassis/")) => Some(path.to_string()),
        path => return Err(UrlError::Path(path.to_string())),
    };
    Ok((format!("{scheme}://{authority}"), host.to_string(), chassis))
}

fn read_file(path: &Path) -> Result<String, MeterError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|f| f.take(CREDENTIAL_LEN_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(MeterError::of_file(path, error)),
    }
}
