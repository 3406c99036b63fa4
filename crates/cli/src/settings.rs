//! Configuration: flags override `E3_*` variables, which override the file, which overrides the
//! defaults.

use crate::cluster::credentials::read_given_token;
use crate::cluster::state_dir::RunningCluster;
use crate::documents::files::read_text;
use crate::limits::PORT_DEFAULT;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{Format, Output, Paint, When};
use clap::Args;
use e3_model::Token;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Global options.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// State directory of the cluster [default: ~/.local/state/e3/default]
    #[arg(long, global = true, env = "E3_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// URL of the controller, such as http://127.0.0.1:7300 [default: that of the cluster in --dir]
    #[arg(long, global = true, env = "E3_CONTROLLER", value_name = "URL")]
    pub controller: Option<String>,
    /// File with the token for --controller [default: the value of E3_TOKEN]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Configuration file [default: ~/.config/e3/config.yaml]
    #[arg(long, global = true, env = "E3_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// When to use colours
    #[arg(
        long,
        global = true,
        env = "E3_COLOR",
        value_enum,
        default_value = "auto"
    )]
    pub color: When,
}

/// Content of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    /// As `--dir`.
    pub dir: Option<PathBuf>,
    /// As `--controller`.
    pub controller: Option<String>,
    /// As `--token-file`.
    pub token_file: Option<PathBuf>,
    /// As `--port`.
    pub port: Option<u16>,
    /// As `--topology`.
    pub topology: Option<String>,
    /// As `--services`.
    pub services: Option<PathBuf>,
    /// As `--profiles`.
    pub profiles: Option<PathBuf>,
    /// As `--output`.
    pub output: Option<Format>,
}

/// The settings of this run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// State directory.
    pub dir: PathBuf,
    /// URL of the controller, if one was given.
    pub controller: Option<String>,
    /// File with its token, if one was given.
    pub token_file: Option<PathBuf>,
    /// Content of the configuration file.
    pub file: ConfigFile,
    /// Colours.
    pub color: When,
}

impl Settings {
    /// Reads the configuration file and combines it with the command line.
    pub fn load(global: &Global) -> Result<Settings, Failure> {
        let file = match (&global.config, default_config()) {
            (Some(path), _) => read_config(path)?,
            (None, Some(path)) if path.exists() => read_config(&path)?,
            _ => ConfigFile::default(),
        };
        let dir = match global.dir.clone().or_else(|| file.dir.clone()) {
            Some(dir) => dir,
            None => default_dir()?,
        };
        Ok(Settings {
            dir: absolute(&dir)?,
            controller: global
                .controller
                .clone()
                .or_else(|| file.controller.clone()),
            token_file: global.token_file.clone(),
            file,
            color: global.color,
        })
    }

    /// For commands that act on the processes and files of the cluster in `--dir`: fails if the given controller is
    /// not that of this cluster.
    pub fn check_controller(&self, cluster: Option<&RunningCluster>) -> Result<(), Failure> {
        let Some(url) = &self.controller else {
            return Ok(());
        };
        let here = url.replacen("://localhost:", "://127.0.0.1:", 1);
        if cluster.is_some_and(|c| c.url() == here.trim_end_matches('/')) {
            return Ok(());
        }
        let message = format!(
            "{url} is not the cluster in {}; this command acts on the cluster in --dir only",
            self.dir.display()
        );
        Err(Failure::new(Exit::Input, message).hint("leave out --controller, or give --dir"))
    }

    /// Token for the given controller: from `--token-file`, else `E3_TOKEN`, else the file that the
    /// configuration names.
    pub fn token(&self) -> Result<Option<Token>, Failure> {
        if let Some(path) = &self.token_file {
            return read_given_token(path).map(Some);
        }
        // There is no option for the token itself: every user can read the options of a process.
        if let Some(text) = std::env::var_os("E3_TOKEN").filter(|t| !t.is_empty()) {
            let token = Token::parse(&text.to_string_lossy());
            let failure = |e| Failure::new(Exit::Input, format!("the value of E3_TOKEN {e}"));
            return token.map(Some).map_err(failure);
        }
        let file = self.file.token_file.as_deref();
        file.map(read_given_token).transpose()
    }

    /// Port for a new cluster.
    pub fn port(&self, flag: Option<u16>) -> Result<u16, Failure> {
        if let Some(port) = flag {
            return Ok(port);
        }
        match std::env::var("E3_PORT").ok().filter(|v| !v.is_empty()) {
            None => Ok(self.file.port.unwrap_or(PORT_DEFAULT)),
            Some(text) => text.parse().map_err(|_| {
                let message = format!("E3_PORT is {text:?}, must be a port: 0..=65535");
                Failure::new(Exit::Input, message)
            }),
        }
    }

    /// Output format.
    pub fn format(&self, flag: Output) -> Format {
        flag.format().or(self.file.output).unwrap_or_default()
    }

    /// Colours of standard output.
    pub fn paint(&self) -> Paint {
        Paint::stdout(self.color)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| Failure::file("find", path, &e))
}

fn below_home(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    match set(variable) {
        Some(dir) => Some(PathBuf::from(dir)),
        None => Some(PathBuf::from(set("HOME")?).join(otherwise)),
    }
}

fn default_config() -> Option<PathBuf> {
    Some(below_home("XDG_CONFIG_HOME", ".config")?.join("e3/config.yaml"))
}

fn default_dir() -> Result<PathBuf, Failure> {
    match below_home("XDG_STATE_HOME", ".local/state") {
        Some(dir) => Ok(dir.join("e3/default")),
        None => Err(
            Failure::new(Exit::Input, "no state directory: HOME is not set")
                .hint("give --dir DIR or set E3_DIR"),
        ),
    }
}

fn read_config(path: &Path) -> Result<ConfigFile, Failure> {
    let text = read_text(path)?;
    if text.trim().is_empty() {
        return Ok(ConfigFile::default());
    }
    let file = path.display().to_string();
    Ok(e3_model::document::parse_settings(&file, &text)?)
}
