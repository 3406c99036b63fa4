//! Updating a running application: its code, assets and settings, but not its shape.
//!
//! State, placement and requests in flight are kept. Each instance changes between two requests, so
//! for a short time both versions run side by side. Until the new version has started at every
//! primary, the plan keeps the last one that has.

use crate::command::{Applied, CommandError};
use crate::limits::{RELEASES_MAX, ROLLBACKS_MAX};
use crate::state::{AppState, Control, RolledBack};
use e3_model::application::{ApplicationSpec, Collection, Resources, Service};
use e3_model::plan::{Release, Role};
use e3_model::{AppId, Application, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

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
        let before = app.plan.proven.take();
        if !std::mem::take(&mut app.is_rollback)
            && let Some(before) = before
        {
            app.history.push_back(before);
            if app.history.len() > RELEASES_MAX {
                app.history.pop_front();
            }
        }
        Applied::Changed
    }

    /// Deploys the version before the present one again, as a new version.
    pub(crate) fn rollback(
        &mut self,
        app: AppId,
        code_version: u32,
        why: Option<&str>,
        at: Timestamp,
    ) -> Result<Applied, CommandError> {
        let none = || CommandError::NoApp(format!("with id {app}"));
        let state = self.apps.get_mut(&app).ok_or_else(none)?;
        if state.plan.code_version != code_version {
            return Ok(Applied::Nothing);
        }
        let name = &state.plan.app.name;
        let target = state.earlier().cloned();
        let target = target.ok_or_else(|| CommandError::NoEarlier(name.clone()))?;
        let next = code_version.checked_add(1);
        let next = next.ok_or_else(|| CommandError::NoVersion(name.clone()))?;
        if state.has_started {
            state.history.pop_back();
        }
        let to = target.code_version;
        state.replace(Release {
            code_version: next,
            ..target
        });
        state.is_rollback = true;
        state.note_rollback(RolledBack {
            from: code_version,
            to,
            code_version: next,
            why: why.map(String::from),
            at,
        });
        self.now = self.now.max(at);
        self.settle_all();
        Ok(Applied::Changed)
    }
}

impl AppState {
    /// The version that a rollback deploys again: the last one that started at every primary, or the one
    /// before if that is the present one.
    pub fn earlier(&self) -> Option<&Release> {
        if self.has_started {
            self.history.back()
        } else {
            self.plan.proven.as_ref()
        }
    }

    /// Whether the controller may leave the present version by itself: not one that it went back to.
    pub(crate) fn may_roll_back(&self) -> bool {
        !self.is_rollback && self.earlier().is_some()
    }

    /// The manifest as it was deployed.
    pub fn manifest(&self) -> Arc<Application> {
        let mut app = self.plan.app.clone();
        if !self.scaled.is_empty() {
            let services = &mut Arc::make_mut(&mut app).spec.services;
            for (service, replicas) in &self.scaled {
                services[usize::from(service.0)].replicas = *replicas;
            }
        }
        app
    }

    /// Puts another version in place of the present one, which is kept if it has started.
    fn replace(&mut self, mut release: Release) {
        // The number of shards is that of the state.
        let running = &self.plan.app.spec.services;
        if (release.app.spec.services.iter().zip(running))
            .any(|(new, old)| new.shards != old.shards)
        {
            let services = &mut Arc::make_mut(&mut release.app).spec.services;
            for (new, old) in services.iter_mut().zip(running) {
                new.shards = old.shards;
            }
        }
        if std::mem::take(&mut self.has_started) {
            let app = self.manifest();
            self.plan.proven = Some(Release {
                app,
                ..self.plan.wanted()
            });
        }
        self.scaled.clear();
        self.is_rollback = false;
        self.plan.code_version = release.code_version;
        self.plan.app = release.app;
        self.plan.modules = release.modules;
        self.plan.assets = release.assets;
    }

    fn note_rollback(&mut self, rollback: RolledBack) {
        self.rollbacks.push_back(rollback);
        if self.rollbacks.len() > ROLLBACKS_MAX {
            self.rollbacks.pop_front();
        }
    }

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
    let (plan, manifest) = (&state.plan, state.manifest());
    let app = &keep_shards(&manifest, app)?;
    if *manifest == *app && plan.modules == modules && plan.assets == *assets {
        if state.scaled.is_empty() {
            return Ok(Applied::Nothing);
        }
        // The manifest decides again how many replicas there are.
        state.plan.app = manifest;
        state.scaled.clear();
        return Ok(Applied::Changed);
    }
    if let Some(field) = fixed_difference(&manifest.spec, &app.spec) {
        let app = app.name.clone();
        return Err(CommandError::Fixed { app, field });
    }
    let next = plan.code_version.checked_add(1);
    let next = next.ok_or_else(|| CommandError::NoVersion(app.name.clone()))?;
    state.replace(Release {
        code_version: next,
        app: app.clone().into(),
        modules: modules.to_vec(),
        assets: assets.clone(),
    });
    Ok(Applied::Changed)
}

/// The manifest with the number of shards that a service has where it says only the bounds.
fn keep_shards(running: &Application, app: &Application) -> Result<Application, CommandError> {
    let mut app = app.clone();
    let services = app.spec.services.iter_mut();
    for (new, old) in services.zip(&running.spec.services) {
        let Some(bounds) = new.shard_bounds.filter(|_| new.name == old.name) else {
            continue;
        };
        if !bounds.allow(old.shards) {
            return Err(CommandError::BoundsMiss {
                service: format!("{}/{}", app.name, new.name),
                now: old.shards,
                bounds,
            });
        }
        new.shards = old.shards;
    }
    Ok(app)
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
        topics: _,
        subscriptions: _,
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
        shard_bounds: _,
        shards_form: _,
        replicas: _,
        durability,
        when_alone,
        deadline: _,
        resources,
        accelerators: _,
        accelerators_required,
        pin,
        collections,
        config: _,
        secrets,
        assets: _,
        asks: _,
        http: _,
        calls: _,
        publishes: _,
        timers: _,
    } = new;
    [
        ("profile", old.profile == *profile),
        ("stateful", old.stateful == *stateful),
        ("shards", old.shards == *shards),
        ("durability", old.durability == *durability),
        ("whenAlone", old.when_alone == *when_alone),
        ("resources", is_same_placed(&old.resources, resources)),
        (
            "acceleratorsRequired",
            old.accelerators_required == *accelerators_required,
        ),
        ("pin", old.pin == *pin),
        ("collections", is_same_kind(&old.collections, collections)),
        ("secrets", old.secrets == *secrets),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}

/// Whether placement sees no difference. The quota of the collections may change.
fn is_same_placed(old: &Resources, new: &Resources) -> bool {
    let Resources {
        cpu,
        memory,
        state: _,
        disk,
    } = new;
    (old.cpu, old.memory, old.disk) == (*cpu, *memory, *disk)
}

/// Whether what is stored stays readable. How long keys live may change.
fn is_same_kind(old: &[Collection], new: &[Collection]) -> bool {
    let of = |collections: &[Collection]| -> Vec<Collection> {
        let of = |c: &Collection| Collection {
            ttl: None,
            ..c.clone()
        };
        collections.iter().map(of).collect()
    };
    of(old) == of(new)
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
            backup: None,
            secrets: BTreeMap::new(),
            restored: None,
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
            (
                &changed("memory: 64Mi}", "memory: 64Mi, state: 1Mi}"),
                &modules,
                &assets,
                5,
            ),
            (
                &changed("kind: hash-map}", "kind: hash-map, ttl: 1h}"),
                &modules,
                &assets,
                6,
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
