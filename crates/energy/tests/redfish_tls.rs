//! Redfish over TLS: whose certificate is accepted. The authority of `tests/tls` signed the server's.

use e3_energy::redfish::{Redfish, RedfishConfig};
use e3_energy::{Meter, MeterError, Reading};
use e3_model::Watts;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// A management controller with a certificate for `localhost`; what it is asked arrives at the receiver.
fn serve(name: &str) -> (String, Receiver<String>) {
    let file = |kind: &str| tls_file(&format!("{name}.{kind}"));
    let certificate = CertificateDer::from_pem_file(file("crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut tls = BufReader::new(StreamOwned::new(connection, stream.unwrap()));
            let mut line = String::new();
            if tls.read_line(&mut line).is_err() {
                continue;
            }
            let _ = sender.send(line.clone());
            while line != "\r\n" && !line.is_empty() {
                line.clear();
                let _ = tls.read_line(&mut line);
            }
            // A chassis that is its own metrics: one answer for every path.
            let path = "/redfish/v1/Chassis/1";
            let body = format!(
                r#"{{"EnvironmentMetrics": {{"@odata.id": "{path}"}}, "PowerWatts": {{"Reading": 240}}}}"#
            );
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}");
            let tls = tls.get_mut();
            let _ = write!(tls, "{head}\r\n\r\n{body}");
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    let url = format!("https://localhost:{port}/redfish/v1/Chassis/1");
    (url, asked)
}

fn tls_file(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    dir.join(name)
}

fn read(url: &str, ca_file: Option<&str>) -> Result<Reading, MeterError> {
    let dir = tempfile::tempdir().unwrap();
    let password_file = dir.path().join("password");
    std::fs::write(&password_file, "secret").unwrap();
    let config = RedfishConfig {
        url: url.to_string(),
        user: "monitor".into(),
        password_file,
        ca_file: ca_file.map(tls_file),
    };
    Redfish::new(config).unwrap().read()
}

#[test]
fn a_certificate_that_the_given_authority_signed_is_accepted() {
    let (url, asked) = serve("bmc");
    let reading = read(&url, Some("authority.crt"));
    assert_eq!(reading.unwrap(), Reading::Power(Watts(240.0)));
    assert_eq!(
        asked.recv().unwrap(),
        "GET /redfish/v1/Chassis/1 HTTP/1.1\r\n"
    );
}

#[test]
fn a_certificate_that_signed_itself_is_accepted_unless_it_is_marked_as_an_authoritys() {
    let (url, _asked) = serve("plain");
    let reading = read(&url, Some("plain.crt"));
    assert_eq!(reading.unwrap(), Reading::Power(Watts(240.0)));
    let (url, asked) = serve("self");
    let error = read(&url, Some("self.crt")).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert!(asked.try_recv().is_err());
}

#[test]
fn nothing_is_sent_to_a_server_whose_certificate_nobody_vouches_for() {
    let (url, asked) = serve("bmc");
    let error = read(&url, None).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert!(
        asked.try_recv().is_err(),
        "no password without a valid certificate"
    );
}
