//! Updating a running application: its code, assets and settings, but not its shape.
//!
//! State, placement and requests in flight are kept. Each instance changes between two requests, so
//! for a short time both versions run side by side.

use crate::command::{Applied, CommandError};
use e3_model::Application;
use e3_model::application::{ApplicationSpec, Service};
use e3_model::plan::AppPlan;
use std::collections::BTreeMap;

/// Updates a plan to another version of its application.
pub(crate) fn update(
    plan: &mut AppPlan,
    app: &Application,
    modules: &[String],
    assets: &BTreeMap<String, String>,
) -> Result<Applied, CommandError> {
    if *plan.app == *app && plan.modules == modules && plan.assets == *assets {
        return Ok(Applied::Nothing);
    }
    if let Some(field) = fixed_difference(&plan.app.spec, &app.spec) {
        let app = app.name.clone();
        return Err(CommandError::Fixed { app, field });
    }
    let next = plan.code_version.checked_add(1);
    plan.code_version = next.ok_or_else(|| CommandError::NoVersion(app.name.clone()))?;
    plan.app = app.clone().into();
    plan.modules = modules.to_vec();
    plan.assets = assets.clone();
    Ok(Applied::Changed)
}

/// The first fixed field that differs. Placement, routing, stored state or log entries depend on the
/// fixed fields.
fn fixed_difference(old: &ApplicationSpec, new: &ApplicationSpec) -> Option<String> {
    // Decide here for each new field whether it may change.
    let ApplicationSpec {
        objective: _,
        deadline: _,
        attempts: _,
        admitted_max: _,
        ingress,
        load,
        secrets,
        assets: _,
        services,
        channels,
    } = new;
    let mut fields = vec![
        ("ingress", old.ingress == *ingress),
        ("load", old.load == *load),
        ("secrets", old.secrets == *secrets),
        ("channels", old.channels == *channels),
    ];
    let names = |of: &[Service]| -> Vec<String> { of.iter().map(|s| s.name.clone()).collect() };
    fields.push(("services", names(&old.services) == names(services)));
    if let Some((field, _)) = fields.iter().find(|(_, same)| !same) {
        return Some(format!("spec.{field}"));
    }
    old.services.iter().zip(services).find_map(|(old, new)| {
        let field = fixed_service_difference(old, new)?;
        Some(format!("{field} of service {:?}", new.name))
    })
}

fn fixed_service_difference(old: &Service, new: &Service) -> Option<&'static str> {
    let Service {
        name: _,
        module: _,
        profile,
        stateful,
        shards,
        replicas,
        durability,
        when_alone,
        deadline: _,
        resources,
        accelerators: _,
        pin,
        collections,
        config: _,
        secrets,
        assets: _,
    } = new;
    [
        ("profile", old.profile == *profile),
        ("stateful", old.stateful == *stateful),
        ("shards", old.shards == *shards),
        ("replicas", old.replicas == *replicas),
        ("durability", old.durability == *durability),
        ("whenAlone", old.when_alone == *when_alone),
        ("resources", old.resources == *resources),
        ("pin", old.pin == *pin),
        ("collections", old.collections == *collections),
        ("secrets", old.secrets == *secrets),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::AppId;
    use e3_model::document::parse_application;

    const APP: &str = include_str!("../../model/tests/two-services.yaml");

    fn changed(from: &str, to: &str) -> Application {
        assert!(APP.contains(from), "{from:?}");
        parse_application("a.yaml", &APP.replacen(from, to, 1)).unwrap()
    }

    fn plan() -> AppPlan {
        AppPlan {
            id: AppId(1),
            code_version: 1,
            app: parse_application("a.yaml", APP).unwrap().into(),
            modules: vec!["m1".into(), "m2".into()],
            assets: BTreeMap::new(),
            slowdown: Vec::new(),
            shards: Vec::new(),
        }
    }

    #[test]
    fn code_assets_and_settings_change_in_place() {
        let mut plan = plan();
        let (app, modules) = (Application::clone(&plan.app), plan.modules.clone());
        let assets = BTreeMap::from([("routes".to_string(), "digest".to_string())]);
        for (app, modules, assets, version) in [
            (&app, &modules, &BTreeMap::new(), 1),
            (&app, &vec!["m1".into(), "m3".into()], &BTreeMap::new(), 2),
            (&app, &vec!["m1".into(), "m3".into()], &assets, 3),
            (&app, &vec!["m1".into(), "m3".into()], &assets, 3),
            (
                &changed("latency: 5ms", "latency: 30ms"),
                &modules,
                &assets,
                4,
            ),
        ] {
            update(&mut plan, app, modules, assets).unwrap();
            assert_eq!(plan.code_version, version);
            assert_eq!((&*plan.app, &plan.modules), (app, modules));
            assert_eq!(plan.assets, *assets);
        }
    }

    #[test]
    fn what_state_and_placement_follow_from_stays() {
        for (from, to, field) in [
            ("shards: 2", "shards: 5", "shards of service \"back\""),
            (
                "replicas: 2",
                "replicas: 1",
                "replicas of service \"front\"",
            ),
            (
                "memory: 64Mi",
                "memory: 65Mi",
                "resources of service \"front\"",
            ),
            (
                "kind: hash-map",
                "kind: ordered-map",
                "collections of service \"back\"",
            ),
        ] {
            let mut plan = plan();
            let before = plan.clone();
            let app = changed(from, to);
            let refused = update(&mut plan, &app, &before.modules, &before.assets);
            let (app, field) = (app.name, field.to_string());
            assert_eq!(refused, Err(CommandError::Fixed { app, field }));
            assert_eq!(plan, before);
        }
    }
}
