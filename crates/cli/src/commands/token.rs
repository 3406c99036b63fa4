//! `e3 token`: who may use the controller, and for what.

use crate::cluster::client::Client;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Table};
use crate::ui::text::time;
use crate::ui::values::duration;
use clap::{Args, Subcommand, ValueEnum};
use e3_model::AccessRole;
use e3_model::api::{TokenRequest, TokenView};
use std::time::Duration;

/// `e3 token`.
#[derive(Args, Debug, Clone)]
pub struct Token {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What `e3 token` does.
#[derive(Subcommand, Debug, Clone)]
pub enum Action {
    /// Create a token and print it; it is shown this once
    Create(Create),
    /// List the tokens and their roles
    List(List),
    /// Revoke a token: its next request is refused
    Revoke(Revoke),
}

/// What a token allows. Each role includes those before it.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// See the state of the cluster
    Read,
    /// Change applications and their secrets too
    Deploy,
    /// Change the cluster too: nodes, formats, tokens
    Admin,
}

/// `e3 token create`.
#[derive(Args, Debug, Clone)]
pub struct Create {
    /// Name: lower-case letters, digits and hyphens
    pub name: String,
    /// What it allows
    #[arg(long, value_enum)]
    pub role: Role,
    /// Time after which it is no longer valid, such as 12h [default: never]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub expires: Option<Duration>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 token list`.
#[derive(Args, Debug, Clone)]
pub struct List {
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 token revoke`.
#[derive(Args, Debug, Clone)]
pub struct Revoke {
    /// Name
    pub name: String,
}

/// `e3 token`.
pub fn run(args: &Token, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    match &args.action {
        Action::Create(args) => create(&client, args, settings),
        Action::List(args) => {
            let all = client.tokens()?;
            output::show(settings.format(args.output), &all, || table(&all))
        }
        Action::Revoke(args) => {
            let revoked = client.revoke_token(&args.name)?;
            output::print(&format!("revoked {}\n", revoked.name))
        }
    }
}

fn create(client: &Client, args: &Create, settings: &Settings) -> Result<(), Failure> {
    let expires_in_ms = args
        .expires
        .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    if expires_in_ms == Some(0) {
        let message = "--expires is 0, must be at least 1ms";
        return Err(Failure::new(Exit::Input, message));
    }
    let created = client.create_token(&TokenRequest {
        name: args.name.clone(),
        role: match args.role {
            Role::Read => AccessRole::Read,
            Role::Deploy => AccessRole::Deploy,
            Role::Admin => AccessRole::Admin,
        },
        expires_in_ms,
    })?;
    let (name, role) = (&created.view.name, created.view.role);
    output::say(&format!(
        "token {name} has role {role}; keep it now, it is not shown again (use: E3_TOKEN, or --token-file FILE)"
    ));
    // Only the token goes to standard output, so that it can be redirected to a file.
    output::show(settings.format(args.output), &created, || {
        format!("{}\n", created.token)
    })
}

fn table(all: &[TokenView]) -> String {
    let mut table = Table::new(&["TOKEN", "ROLE", "CREATED", "EXPIRES"]);
    let at = |ms: Option<u64>, none: &str| ms.map_or_else(|| none.into(), time);
    for token in all {
        let expires = at(token.expires_unix_ms, "never");
        let expired = if token.expired { " (expired)" } else { "" };
        table.row([
            token.name.clone(),
            token.role.to_string(),
            at(token.created_unix_ms, "-"),
            format!("{expires}{expired}"),
        ]);
    }
    table.render()
}
