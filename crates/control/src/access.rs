//! The commands about tokens and secrets. Random numbers come with the command. Design: docs/design/020.

use crate::command::{Applied, CommandError};
use crate::credentials::{ApiToken, SecretState};
use crate::limits::{SECRET_SEALED_LEN_MAX, SECRETS_MAX, TOKENS_MAX};
use crate::state::Control;
use e3_model::{Format, Sealed, Timestamp};
use std::collections::BTreeMap;

impl Control {
    pub(crate) fn create_token(
        &mut self,
        name: &str,
        token: &ApiToken,
    ) -> Result<Applied, CommandError> {
        self.check_format(Format::ACCESS, "tokens")?;
        if self.tokens.contains_key(name) {
            return Err(CommandError::TokenExists(name.into()));
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(CommandError::TooManyTokens(self.tokens.len()));
        }
        self.tokens.insert(name.into(), token.clone());
        Ok(Applied::Changed)
    }

    pub(crate) fn revoke_token(&mut self, name: &str) -> Result<Applied, CommandError> {
        let removed = self.tokens.remove(name);
        let none = || CommandError::NoToken {
            name: name.into(),
            known: self.tokens.keys().cloned().collect(),
        };
        removed.map(|_| Applied::Changed).ok_or_else(none)
    }

    pub(crate) fn set_secret(
        &mut self,
        app: &str,
        name: &str,
        value: &Sealed,
        at: Timestamp,
    ) -> Result<Applied, CommandError> {
        self.check_format(Format::ACCESS, "encrypted secrets")?;
        if value.bytes.len() > SECRET_SEALED_LEN_MAX {
            return Err(CommandError::SecretLength {
                app: app.into(),
                name: name.into(),
            });
        }
        let known = self.secret(app, name);
        let count: usize = self.secrets.values().map(BTreeMap::len).sum();
        if known.is_none() && count >= SECRETS_MAX {
            return Err(CommandError::TooManySecrets(count));
        }
        let secret = SecretState {
            version: known.map_or(1, |s| s.version + 1),
            set: at,
            value: value.clone(),
            previous: known.map(|s| s.value.clone()),
        };
        let of_app = self.secrets.entry(app.into()).or_default();
        of_app.insert(name.into(), secret);
        self.now = self.now.max(at);
        self.settle_secrets(app);
        Ok(Applied::Changed)
    }

    /// Services can no longer read the value before.
    pub(crate) fn retire_secret(&mut self, app: &str, name: &str) -> Result<Applied, CommandError> {
        let none = || CommandError::NoSecret {
            app: app.into(),
            name: name.into(),
        };
        let of_app = self.secrets.get_mut(app);
        let secret = of_app.and_then(|s| s.get_mut(name)).ok_or_else(none)?;
        if secret.previous.take().is_none() {
            return Ok(Applied::Nothing);
        }
        secret.version += 1;
        self.settle_secrets(app);
        Ok(Applied::Changed)
    }

    pub(crate) fn delete_secret(&mut self, app: &str, name: &str) -> Result<Applied, CommandError> {
        let (app, name) = (app.to_string(), name.to_string());
        if self.secret(&app, &name).is_none() {
            return Err(CommandError::NoSecret { app, name });
        }
        let running = self.app_named(&app).map(|id| &self.apps[&id].plan.app);
        if running.is_some_and(|a| a.spec.secrets.iter().any(|s| s.name == name)) {
            return Err(CommandError::SecretInUse { app, name });
        }
        if let Some(of_app) = self.secrets.get_mut(&app) {
            of_app.remove(&name);
        }
        self.secrets.retain(|_, of_app| !of_app.is_empty());
        Ok(Applied::Changed)
    }

    /// A secret of an application.
    pub fn secret(&self, app: &str, name: &str) -> Option<&SecretState> {
        self.secrets.get(app)?.get(name)
    }

    /// Puts the versions of an application's secrets into its plan, if it runs.
    pub(crate) fn settle_secrets(&mut self, name: &str) {
        let Some(id) = self.app_named(name) else {
            return;
        };
        let app = self.apps.get_mut(&id).expect("found by its name");
        let declared = app.plan.app.spec.secrets.iter();
        let known = self.secrets.get(name);
        let versions = declared.filter_map(|s| {
            let secret = known?.get(&s.name)?;
            Some((s.name.clone(), secret.version))
        });
        app.plan.secrets = versions.collect();
    }
}
