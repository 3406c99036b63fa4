//! Updating a running application: its code, assets and settings, but not its shape.
//!
//! State, placement and requests in flight are kept. Each instance changes between two requests, so
//! for a short time both versions run side by side. Until the new version has started at every
//! primary, the plan keeps the last one that has.

use crate::command::{Applied, CommandError};
use crate::state::{AppState, Control};
use e3_model::application::{ApplicationSpec, Service};
use e3_model::plan::Role;
use e3_model::{AppId, Application, NodeId, ShardKey};
use std::collections::BTreeMap;

impl Control {
    /// A version has started at every primary: no older one is needed.
    pub(crate) fn started(&mut self, app: AppId, code_version: u32) -> Applied {
        let Some(app) = self.apps.get_mut(&app) else {
            return Applied::Nothing;
        };
        if app.has_started || app.plan.code_version != code_version {
            return Applied::Nothing;
        }
        app.has_started = true;
        app.plan.proven = None;
        Applied::Changed
    }
}

impl AppState {
    /// Whether the version of the plan runs at every primary, given which version a node runs of a
    /// shard.
    pub fn runs_everywhere(&self, version: impl Fn(ShardKey, NodeId) -> Option<u32>) -> bool {
        let wanted = Some(self.plan.code_version);
        self.plan.shards.iter().all(|shard| {
            let is_served = shard.role(shard.primary) == Some(Role::Primary);
            is_served && version(self.plan.key(shard), shard.primary) == wanted
        })
    }
}

/// Updates an application to another version.
pub(crate) fn update(
    state: &mut AppState,
    app: &Application,
    modules: &[String],
    assets: &BTreeMap<String, String>,
) -> Result<Applied, CommandError> {
    let plan = &mut state.plan;
    if *plan.app == *app && plan.modules == modules && plan.assets == *assets {
        return Ok(Applied::Nothing);
    }
    if let Some(field) = fixed_difference(&plan.app.spec, &app.spec) {
        let app = app.name.clone();
        return Err(CommandError::Fixed { app, field });
    }
    let next = plan.code_version.checked_add(1);
    let next = next.ok_or_else(|| CommandError::NoVersion(app.name.clone()))?;
    if std::mem::take(&mut state.has_started) {
        plan.proven = Some(plan.wanted());
    }
    plan.code_version = next;
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
    use e3_model::document::{parse_application, parse_topology};
    use e3_model::plan::AppPlan;

    const APP: &str = include_str!("../../model/tests/two-services.yaml");

    fn changed(from: &str, to: &str) -> Application {
        assert!(APP.contains(from), "{from:?}");
        parse_application("a.yaml", &APP.replacen(from, to, 1)).unwrap()
    }

    fn state() -> AppState {
        let plan = AppPlan {
            id: AppId(1),
            code_version: 1,
            app: parse_application("a.yaml", APP).unwrap().into(),
            modules: vec!["m1".into(), "m2".into()],
            assets: BTreeMap::new(),
            proven: None,
            resharded: Vec::new(),
            slowdown: Vec::new(),
            shards: Vec::new(),
        };
        AppState::new(plan, BTreeMap::new(), Vec::new())
    }

    #[test]
    fn code_assets_and_settings_change_in_place() {
        let mut state = state();
        let (app, modules) = (
            Application::clone(&state.plan.app),
            state.plan.modules.clone(),
        );
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
            update(&mut state, app, modules, assets).unwrap();
            let plan = &state.plan;
            assert_eq!(plan.code_version, version);
            assert_eq!((&*plan.app, &plan.modules), (app, modules));
            assert_eq!(plan.assets, *assets);
        }
    }

    #[test]
    fn the_last_version_that_started_is_kept_until_the_next_has() {
        let topology = include_str!("../../../topologies/3x-type1.yaml");
        let mut control = Control::new(9, parse_topology("t.yaml", topology).unwrap());
        control.apps.insert(AppId(1), state());
        let (id, app) = (AppId(1), changed("", ""));
        let deploy = |control: &mut Control, module: &str| {
            let state = control.apps.get_mut(&id).unwrap();
            update(state, &app, &[module.into(), "m2".into()], &BTreeMap::new()).unwrap();
        };
        let proven = |control: &Control| {
            let proven = control.apps[&id].plan.proven.clone();
            proven.map(|r| (r.code_version, r.modules[0].clone()))
        };
        // No version has started yet.
        deploy(&mut control, "m3");
        assert_eq!(proven(&control), None);
        assert_eq!(control.started(id, 1), Applied::Nothing);
        assert_eq!(control.started(id, 2), Applied::Changed);
        assert_eq!(control.started(id, 2), Applied::Nothing);
        // Neither of these starts.
        for module in ["m4", "m5"] {
            deploy(&mut control, module);
            assert_eq!(proven(&control), Some((2, "m3".into())));
            let first = control.apps[&id].plan.initial();
            assert_eq!(first.code_version, 2);
        }
        assert_eq!(control.started(id, 4), Applied::Changed);
        assert_eq!(proven(&control), None);
        assert_eq!(control.apps[&id].plan.initial().modules[0], "m5");
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
            let mut state = state();
            let before = state.clone();
            let app = changed(from, to);
            let plan = &before.plan;
            let refused = update(&mut state, &app, &plan.modules, &plan.assets);
            let (app, field) = (app.name, field.to_string());
            assert_eq!(refused, Err(CommandError::Fixed { app, field }));
            assert_eq!(state, before);
        }
    }
}
