//! The part of the API for tokens, secrets and the audit log, and the secrets that a load signs with.

use crate::cluster::client::{Client, segment};
use crate::cluster::state_dir::StateDir;
use crate::ui::failure::{Exit, Failure};
use e3_controller::SecretKey;
use e3_model::Sealed;
use e3_model::api::{
    AuditView, DeleteSecretResponse, RevokeResponse, SecretView, TokenRequest, TokenResponse,
    TokenView,
};
use std::io::ErrorKind;
use std::path::PathBuf;

impl Client {
    /// `GET /v1/tokens`.
    pub fn tokens(&self) -> Result<Vec<TokenView>, Failure> {
        self.get("/v1/tokens")
    }

    /// `POST /v1/tokens`.
    pub fn create_token(&self, request: &TokenRequest) -> Result<TokenResponse, Failure> {
        let post = self.http.post(self.path("/v1/tokens"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `DELETE /v1/tokens/{name}`.
    pub fn revoke_token(&self, name: &str) -> Result<RevokeResponse, Failure> {
        let path = self.path(&format!("/v1/tokens/{}", segment("token", name)?));
        self.answer(self.authorized(self.http.delete(path)).call())
    }

    /// `GET /v1/audit`.
    pub fn audit(&self, after: u64, since_unix_ms: u64) -> Result<Vec<AuditView>, Failure> {
        self.get(&format!(
            "/v1/audit?after={after}&sinceUnixMs={since_unix_ms}"
        ))
    }

    /// `GET /v1/apps/{name}/secrets`.
    pub fn secrets(&self, app: &str) -> Result<Vec<SecretView>, Failure> {
        let app = segment("application", app)?;
        self.get(&format!("/v1/apps/{app}/secrets"))
    }

    /// `POST /v1/apps/{name}/secrets/{secret}`.
    pub fn set_secret(&self, app: &str, name: &str, value: &[u8]) -> Result<SecretView, Failure> {
        let post = self.http.post(self.path(&secret_path(app, name)?));
        self.answer(self.authorized(post).send(value))
    }

    /// `DELETE /v1/apps/{name}/secrets/{secret}/previous`.
    pub fn retire_secret(&self, app: &str, name: &str) -> Result<SecretView, Failure> {
        let path = format!("{}/previous", secret_path(app, name)?);
        let delete = self.http.delete(self.path(&path));
        self.answer(self.authorized(delete).call())
    }

    /// `DELETE /v1/apps/{name}/secrets/{secret}`.
    pub fn delete_secret(&self, app: &str, name: &str) -> Result<DeleteSecretResponse, Failure> {
        let delete = self.http.delete(self.path(&secret_path(app, name)?));
        self.answer(self.authorized(delete).call())
    }

    /// `GET /v1/apps/{name}/secrets/{secret}/sealed`.
    pub fn sealed_secret(&self, app: &str, name: &str) -> Result<Sealed, Failure> {
        self.get(&format!("{}/sealed", secret_path(app, name)?))
    }
}

fn secret_path(app: &str, name: &str) -> Result<String, Failure> {
    let (app, name) = (segment("application", app)?, segment("secret", name)?);
    Ok(format!("/v1/apps/{app}/secrets/{name}"))
}

/// Where a load finds the secrets that it signs requests with.
#[derive(Clone, Debug)]
pub enum SecretsOf {
    /// A directory with a file for each.
    Dir(PathBuf),
    /// The cluster with this state directory, which has the key that they are encrypted under.
    Cluster(StateDir),
}

impl SecretsOf {
    /// The value of a secret.
    pub fn read(&self, client: &Client, app: &str, name: &str) -> Result<Vec<u8>, Failure> {
        const HINT: &str =
            "the load generator signs requests with it; give its directory with --secrets DIR";
        let dir = match self {
            SecretsOf::Dir(dir) => dir.clone(),
            SecretsOf::Cluster(state) => state.secrets_dir(app),
        };
        let path = dir.join(name);
        match (std::fs::read(&path), self) {
            (Ok(value), _) => Ok(value),
            // Since format 8 it is in the controller's log.
            (Err(e), SecretsOf::Cluster(state)) if e.kind() == ErrorKind::NotFound => {
                let sealed = client.sealed_secret(app, name)?;
                let key = SecretKey::read(&state.secret_key_file()?);
                let value = key.and_then(|key| key.open(app, name, &sealed));
                value.map_err(|e| Failure::new(Exit::Input, e).hint(HINT))
            }
            (Err(e), _) => Err(Failure::file("read the secret", &path, &e).hint(HINT)),
        }
    }
}
