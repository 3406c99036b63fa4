//! Redfish: a management controller that is imitated by a server with recorded documents.

use e3_energy::limits::HTTP_MAX;
use e3_energy::redfish::{Redfish, RedfishConfig, UrlError};
use e3_energy::{Choice, Meter, MeterConfig, MeterError, Reading, Sampler, discover};
use e3_model::meter::MeterScope;
use e3_model::{Timestamp, Watts};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// `monitor:secret` in base 64.
const AUTHORIZATION: &str = "authorization: Basic bW9uaXRvcjpzZWNyZXQ=";
const CHASSIS: &str = "/redfish/v1/Chassis";

/// What the server does with a path.
#[derive(Clone)]
enum Answer {
    Json(String),
    Status(u16),
    /// Redirects to this address.
    Redirect(String),
    /// Never answers.
    Silence,
    /// Ends the connection in the middle of the body.
    Broken,
}

/// A management controller.
struct Bmc {
    url: String,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
    /// Request lines, in order.
    asked: Arc<Mutex<Vec<String>>>,
    dir: tempfile::TempDir,
}

impl Bmc {
    fn new() -> Bmc {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = Arc::new(Mutex::new(BTreeMap::new()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (to_answer, to_note) = (answers.clone(), asked.clone());
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                silent.extend(serve(stream, &to_answer, &to_note));
            }
        });
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("password"), "secret\n").unwrap();
        Bmc {
            url,
            answers,
            asked,
            dir,
        }
    }

    /// One chassis with a system, and the documents given.
    fn with(documents: &[(&str, &str)]) -> Bmc {
        let bmc = Bmc::new();
        bmc.chassis(&["Self"]);
        for (path, json) in documents {
            bmc.json(&format!("{CHASSIS}/{path}"), json);
        }
        bmc
    }

    fn put(&self, path: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(path.into(), answer);
    }

    fn json(&self, path: &str, json: &str) {
        self.put(path, Answer::Json(json.into()));
    }

    fn chassis(&self, names: &[&str]) {
        let link = |name: &&str| format!(r#"{{"@odata.id": "{CHASSIS}/{name}"}}"#);
        let members: Vec<String> = names.iter().map(link).collect();
        let count = names.len();
        let text = format!(
            r##"{{"@odata.type": "#ChassisCollection.ChassisCollection", "Members@odata.count": {count},
            "Members": [{}]}}"##,
            members.join(", ")
        );
        self.json(CHASSIS, &text);
    }

    fn config(&self, path: &str) -> RedfishConfig {
        RedfishConfig {
            url: format!("{}{path}", self.url),
            user: "monitor".into(),
            password_file: self.dir.path().join("password"),
            ca_file: None,
        }
    }

    fn meter(&self) -> Redfish {
        Redfish::new(self.config("")).unwrap()
    }

    #[track_caller]
    fn shows(&self, watts: f64) {
        assert_eq!(self.meter().read().unwrap(), Reading::Power(Watts(watts)));
    }

    fn fails(&self) -> String {
        self.meter().read().unwrap_err().to_string()
    }
}

/// Answers one request. A connection that is kept silent is returned, so that it stays open.
fn serve(
    mut stream: TcpStream,
    answers: &Mutex<BTreeMap<String, Answer>>,
    asked: &Mutex<Vec<String>>,
) -> Option<TcpStream> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|l| !l.is_empty())
        .collect();
    asked.lock().unwrap().push(request.clone());
    let path = request.split(' ').nth(1)?.to_string();
    let answer = answers.lock().unwrap().get(&path).cloned();
    let is_known = headers.iter().any(|h| h == AUTHORIZATION);
    let (status, more, body) = match answer.unwrap_or(Answer::Status(404)) {
        _ if !is_known => (401, String::new(), String::new()),
        Answer::Json(body) => (200, String::new(), body),
        Answer::Status(status) => (status, String::new(), "{}".into()),
        Answer::Redirect(to) => (308, format!("location: {to}\r\n"), String::new()),
        Answer::Silence => return Some(stream),
        Answer::Broken => {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{{");
            return None;
        }
    };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} Status\r\n{more}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    None
}

/// A chassis with a system, and links of these names to resources below it.
fn chassis(name: &str, links: &[&str]) -> String {
    let link = |l: &&str| format!(r#", "{l}": {{"@odata.id": "{CHASSIS}/{name}/{l}"}}"#);
    let links: String = links.iter().map(link).collect();
    format!(
        r##"{{"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "{name}", "ChassisType": "RackMount",
        "Links": {{"ComputerSystems": [{{"@odata.id": "/redfish/v1/Systems/1"}}]}}{links}}}"##
    )
}

fn environment(watts: &str) -> String {
    format!(
        r##"{{"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
        "PowerWatts": {{"DataSourceUri": "{CHASSIS}/Self/Sensors/Power", "Reading": {watts}}},
        "EnergykWh": {{"Reading": 325.4}}}}"##
    )
}

fn power(watts: &str) -> String {
    format!(
        r##"{{"@odata.type": "#Power.v1_7_1.Power", "PowerControl": [{{"MemberId": "0",
        "PowerConsumedWatts": {watts}, "PowerCapacityWatts": 800,
        "PowerMetrics": {{"IntervalInMin": 1, "AverageConsumedWatts": 190}}}}]}}"##
    )
}

/// A controller whose chassis shows its power in `EnvironmentMetrics`.
fn modern(watts: &str) -> Bmc {
    let self_ = chassis("Self", &["EnvironmentMetrics", "Power"]);
    Bmc::with(&[
        ("Self", &self_),
        ("Self/EnvironmentMetrics", &environment(watts)),
        ("Self/Power", &power("100")),
    ])
}

#[test]
fn environment_metrics_are_read_first_and_found_once() {
    let bmc = modern("374.5");
    let mut meter = bmc.meter();
    assert_eq!(meter.read().unwrap(), Reading::Power(Watts(374.5)));
    assert_eq!(meter.about().name, "redfish:127.0.0.1");
    assert_eq!(meter.about().scope, MeterScope::Server);
    bmc.asked.lock().unwrap().clear();
    bmc.json(
        &format!("{CHASSIS}/Self/EnvironmentMetrics"),
        &environment("380"),
    );
    assert_eq!(meter.read().unwrap(), Reading::Power(Watts(380.0)));
    let asked = bmc.asked.lock().unwrap().clone();
    assert_eq!(
        asked,
        [format!("GET {CHASSIS}/Self/EnvironmentMetrics HTTP/1.1")]
    );
}

#[test]
fn an_older_controller_shows_its_power_in_the_resource_power() {
    let self_ = chassis("Self", &["Power"]);
    Bmc::with(&[("Self", &self_), ("Self/Power", &power("344"))]).shows(344.0);
    // One that has the newer resource without a figure.
    modern("null").shows(100.0);
}

#[test]
fn a_controller_with_only_power_supplies_shows_the_sum_of_their_inputs() {
    let self_ = chassis("Self", &["PowerSubsystem"]);
    let base = format!("{CHASSIS}/Self/PowerSubsystem");
    let link = |path: &str| format!(r#"{{"@odata.id": "{base}/{path}"}}"#);
    let supply = |n: u8| {
        format!(
            r#"{{"Metrics": {}}}"#,
            link(&format!("PowerSupplies/{n}/Metrics"))
        )
    };
    let input = |watts: &str| format!(r#"{{"InputPowerWatts": {{"Reading": {watts}}}}}"#);
    let [first, second] = [1, 2].map(|n| link(&format!("PowerSupplies/{n}")));
    let bmc = Bmc::with(&[
        ("Self", &self_),
        (
            "Self/PowerSubsystem",
            &format!(r#"{{"PowerSupplies": {}}}"#, link("PowerSupplies")),
        ),
        (
            "Self/PowerSubsystem/PowerSupplies",
            &format!(r#"{{"Members": [{first}, {second}]}}"#),
        ),
        ("Self/PowerSubsystem/PowerSupplies/1", &supply(1)),
        ("Self/PowerSubsystem/PowerSupplies/2", &supply(2)),
        (
            "Self/PowerSubsystem/PowerSupplies/1/Metrics",
            &input("150.5"),
        ),
        (
            "Self/PowerSubsystem/PowerSupplies/2/Metrics",
            &input("149.5"),
        ),
    ]);
    bmc.shows(300.0);
    // The sum without one of them would be too low.
    bmc.json(&format!("{base}/PowerSupplies/2/Metrics"), &input("null"));
    assert_eq!(bmc.fails(), "redfish:127.0.0.1: shows no power at present");
}

#[test]
fn of_several_chassis_the_one_with_the_system_is_read() {
    let bmc = modern("374.5");
    bmc.chassis(&["Rack", "Self", "Shelf"]);
    let rack = r#"{"Power": {"@odata.id": "/redfish/v1/Chassis/Rack/Power"}}"#;
    bmc.json(&format!("{CHASSIS}/Rack"), rack);
    bmc.json(&format!("{CHASSIS}/Rack/Power"), &power("9000"));
    bmc.json(
        &format!("{CHASSIS}/Shelf"),
        r#"{"Links": {"ComputerSystems": []}}"#,
    );
    bmc.shows(374.5);
    bmc.json(&format!("{CHASSIS}/Shelf"), &chassis("Shelf", &["Power"]));
    bmc.json(&format!("{CHASSIS}/Shelf/Power"), &power("50"));
    let error = bmc.fails();
    let says = "several chassis show power: /redfish/v1/Chassis/Self, /redfish/v1/Chassis/Shelf; \
                give the URL of one of them";
    assert!(error.ends_with(says), "{error}");
    let mut shelf = Redfish::new(bmc.config("/redfish/v1/Chassis/Shelf/")).unwrap();
    assert_eq!(shelf.read().unwrap(), Reading::Power(Watts(50.0)));
}

#[test]
fn a_wrong_password_is_told_without_showing_it() {
    let bmc = modern("374.5");
    std::fs::write(bmc.dir.path().join("password"), "guess").unwrap();
    let mut meter = bmc.meter();
    let error = meter.read().unwrap_err();
    let says = "redfish:127.0.0.1 refuses user name or password (status 401)";
    assert_eq!(error.to_string(), says);
    assert!(error.fix().unwrap().contains("--meter-user"));
    assert!(!format!("{:?} {error:?}", bmc.config("")).contains("guess"));
    // The file is read again: a corrected password needs no restart.
    std::fs::write(bmc.dir.path().join("password"), "secret").unwrap();
    assert_eq!(meter.read().unwrap(), Reading::Power(Watts(374.5)));
    std::fs::remove_file(bmc.dir.path().join("password")).unwrap();
    let error = meter.read().unwrap_err().to_string();
    assert!(error.ends_with("password does not exist"), "{error}");
}

#[test]
fn repeated_failures_are_spaced_out_so_that_no_account_is_locked() {
    let bmc = modern("374.5");
    std::fs::write(bmc.dir.path().join("password"), "guess").unwrap();
    let config = MeterConfig {
        choice: Choice::Named(vec!["redfish".into()]),
        redfish: Some(bmc.config("")),
        ..MeterConfig::default()
    };
    let mut sampler = Sampler::open(config, Timestamp(0)).unwrap().unwrap();
    let mut pause = |second: u64| {
        sampler.sample(|| Timestamp(second * 1_000_000_000));
        sampler.pause().as_secs()
    };
    assert_eq!(
        (1..=8).map(&mut pause).collect::<Vec<_>>(),
        [1, 2, 4, 8, 16, 32, 60, 60]
    );
}

#[test]
fn a_redirect_is_not_followed_because_the_password_is_for_this_host() {
    let bmc = modern("374.5");
    bmc.put(
        CHASSIS,
        Answer::Redirect("https://elsewhere/redfish/v1/Chassis".into()),
    );
    let error = bmc.fails();
    let says = "GET /redfish/v1/Chassis redirects to \"https://elsewhere/redfish/v1/Chassis\", \
                which is not followed; give that URL";
    assert!(error.ends_with(says), "{error}");
    // Nor is a link to another host.
    let link = r#"{"Members": [{"@odata.id": "https://elsewhere/redfish/v1/Chassis/1"}]}"#;
    bmc.json(CHASSIS, link);
    let error = bmc.fails();
    assert!(error.ends_with("does not lead to /redfish/v1"), "{error}");
}

#[test]
fn a_slow_controller_costs_a_bounded_time() {
    let bmc = modern("374.5");
    bmc.put(
        &format!("{CHASSIS}/Self/EnvironmentMetrics"),
        Answer::Silence,
    );
    let begin = Instant::now();
    assert_eq!(bmc.fails(), "redfish:127.0.0.1 did not answer within 3 s");
    assert!(begin.elapsed() < 2 * HTTP_MAX);
}

#[test]
fn wrong_documents_are_told() {
    let metrics = format!("{CHASSIS}/Self/EnvironmentMetrics");
    let says = |answer: Answer, says: &str| {
        let bmc = modern("1");
        bmc.put(&metrics, answer);
        let error = bmc.fails();
        assert!(error.contains(says), "{error}");
    };
    let json = |text: &str| Answer::Json(text.into());
    says(
        json(&environment("\"240\"")),
        "/PowerWatts/Reading is \"240\", must be a number",
    );
    says(json(&environment("[1]")), "is [1], must be a number");
    says(json(&environment("-7")), "shows -7 W, must be 0..=20000");
    says(json(&environment("1e300")), "must be 0..=20000");
    says(json("<html>"), "the answer is not JSON");
    says(json(""), "the answer is not JSON");
    says(Answer::Json(" ".repeat(2 << 20)), "redfish:127.0.0.1: ");
    says(Answer::Broken, "redfish:127.0.0.1: ");
    says(Answer::Status(500), "EnvironmentMetrics: status 500");
    says(Answer::Status(404), "EnvironmentMetrics: status 404");
    let bmc = modern("1");
    bmc.json(CHASSIS, r#"{"Members": 7}"#);
    assert!(
        bmc.fails()
            .ends_with("/redfish/v1/Chassis has no array Members")
    );
    bmc.json(CHASSIS, r#"{"Members": [{"@odata.id": 7}]}"#);
    assert!(bmc.fails().ends_with("link 7 does not lead to /redfish/v1"));
    bmc.json(CHASSIS, r#"{"Members": []}"#);
    assert!(bmc.fails().ends_with("no chassis shows its power"));
}

#[test]
fn a_controller_that_is_away_is_told_and_found_again() {
    let bmc = modern("374.5");
    let mut meter = bmc.meter();
    meter.read().unwrap();
    bmc.put(
        &format!("{CHASSIS}/Self/EnvironmentMetrics"),
        Answer::Status(404),
    );
    assert!(matches!(meter.read(), Err(MeterError::Answer { .. })));
    // After an update it only has the older resource.
    bmc.json(&format!("{CHASSIS}/Self"), &chassis("Self", &["Power"]));
    assert_eq!(meter.read().unwrap(), Reading::Power(Watts(100.0)));
    let gone = RedfishConfig {
        url: "http://127.0.0.1:1".into(),
        ..bmc.config("")
    };
    assert!(Redfish::new(gone).unwrap().read().is_err());
}

#[test]
fn a_configured_controller_is_listed_and_read_first() {
    let bmc = modern("374.5");
    let config = MeterConfig {
        redfish: Some(bmc.config("")),
        ..MeterConfig::default()
    };
    let found = discover(&config);
    let shown = found.last().unwrap().shows.as_ref().unwrap();
    assert_eq!(shown.reading, Reading::Power(Watts(374.5)));
    assert_eq!(config.open().unwrap().unwrap().name, "redfish:127.0.0.1");
}

#[test]
fn a_url_that_would_show_the_password_is_refused() {
    let check = |url: &str| {
        let config = RedfishConfig {
            url: url.into(),
            ..modern("1").config("")
        };
        Redfish::new(config).err()
    };
    assert_eq!(check("https://bmc-7"), None);
    assert_eq!(check("https://[2001:db8::7]:8443/redfish/v1/"), None);
    assert_eq!(
        check("http://bmc-7"),
        Some(UrlError::Plain("http://bmc-7".into()))
    );
    assert_eq!(
        check("https://root:secret@bmc-7"),
        Some(UrlError::Credentials)
    );
    for wrong in ["", "bmc-7", "ftp://bmc-7", "https://", "https:// bmc"] {
        assert_eq!(check(wrong), Some(UrlError::NotAUrl(wrong.into())));
    }
    let path = "/redfish/v1/Systems/1";
    assert_eq!(
        check(&format!("https://b{path}")),
        Some(UrlError::Path(path.into()))
    );
}

#[test]
fn a_file_without_certificates_is_told() {
    let bmc = modern("1");
    let config = RedfishConfig {
        ca_file: Some(bmc.dir.path().join("password")),
        ..bmc.config("")
    };
    let error = Redfish::new(config)
        .unwrap()
        .read()
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("password holds no certificate"), "{error}");
}
