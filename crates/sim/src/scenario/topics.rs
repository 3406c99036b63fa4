//! Topics of a scenario: which service publishes, and who is subscribed.

use super::{Act, AppShape, Fault, Scenario};
use e3_dataplane::limits::OUTBOUND_RETRY_AFTER_MAX;
use e3_model::Nanos;
use e3_random::Random;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A topic on which a service with state publishes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopicShape {
    /// Index of the application.
    pub app: usize,
    /// Index of the service.
    pub service: usize,
    /// It publishes for one message in so many.
    pub every: u64,
    /// Who is subscribed.
    pub subscribers: Vec<SubscriberShape>,
}

/// A service that is subscribed to a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscriberShape {
    /// Index of its application.
    pub app: usize,
    /// Index of the service.
    pub service: usize,
}

/// Most topics of a scenario.
const TOPICS_MAX: usize = 2;
/// How long a subscriber is slow or away, in scenarios in which it is so for long.
const AWAY_MS: u64 = 15_000;
/// What a publication may take after those before it of its key: its copies, and the entry that removes
/// it. For each service on disk that has a part in this the same again: an entry waits while the disk
/// writes those before it, at most 10 ms, and is then written.
const PUBLICATION_TIME: Nanos = Nanos::from_millis(20);

/// Services with state publish, in one scenario of three. From random numbers of their own, so that the
/// rest of a seed's scenario stays as it is.
pub(super) fn draw(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_701c);
    if !random.one_in(3) {
        return;
    }
    for (app, shape) in scenario.apps.iter().enumerate() {
        for (service, s) in shape.services.iter().enumerate() {
            if s.stateful && scenario.topics.len() < TOPICS_MAX && !random.one_in(3) {
                scenario.topics.push(TopicShape {
                    app,
                    service,
                    every: *random.pick(&[1, 4, 16]),
                    subscribers: subscribers(random, scenario),
                });
            }
        }
    }
    if !scenario.topics.is_empty() && random.one_in(2) {
        let act = away(random, scenario);
        scenario.script.push(act);
        scenario.script.sort_by_key(|act| act.at_ms);
    }
}

/// One to three services of all applications.
fn subscribers(random: &mut Random, scenario: &Scenario) -> Vec<SubscriberShape> {
    let mut subscribers = Vec::new();
    for _ in 0..1 + random.below(3) {
        let app = random.index(scenario.apps.len());
        let service = random.index(scenario.apps[app].services.len());
        let subscriber = SubscriberShape { app, service };
        if !subscribers.contains(&subscriber) {
            subscribers.push(subscriber);
        }
    }
    subscribers
}

/// A node is slow, or away, for long.
fn away(random: &mut Random, scenario: &Scenario) -> Act {
    let nodes = u64::from(scenario.nodes());
    let (node, other) = (random.below(nodes) as u32, random.below(nodes) as u32);
    let fault = match random.below(6) {
        0 => Fault::Slow(node, 100),
        1 => Fault::Isolate(node),
        2 => Fault::Pause(node),
        // What a publisher sends last may reach a subscriber, and no backup.
        3 | 4 => Fault::CutAndKill(node, other),
        _ => Fault::Kill(node),
    };
    Act {
        at_ms: random.below(scenario.faults_ms - AWAY_MS),
        for_ms: AWAY_MS,
        fault,
    }
}

impl Scenario {
    /// What a service publishes on, if it publishes.
    pub(crate) fn topic_of(&self, app: usize, service: usize) -> Option<&TopicShape> {
        let mut topics = self.topics.iter();
        topics.find(|t| (t.app, t.service) == (app, service))
    }

    /// What the application's manifest says of topics, indented for its services.
    pub(super) fn publishes(&self, app: usize, service: usize) -> String {
        let topic = self.topic_of(app, service);
        topic.map_or(String::new(), |_| {
            format!("      publishes: [t{service}]\n")
        })
    }

    /// The same for the application as a whole.
    pub(super) fn topics_of(&self, app: usize) -> String {
        let own = self.topics.iter().filter(|t| t.app == app);
        let own: Vec<String> = own.map(|t| format!("t{}", t.service)).collect();
        let mut text = format!("  topics: [{}]\n  subscriptions:", own.join(", "));
        let mut is_subscribed = false;
        for topic in &self.topics {
            let name = if topic.app == app {
                format!("t{}", topic.service)
            } else {
                format!("app{}/t{}", topic.app, topic.service)
            };
            for subscriber in topic.subscribers.iter().filter(|s| s.app == app) {
                is_subscribed = true;
                let service = subscriber.service;
                let _ = write!(text, "\n    - {{topic: {name}, service: svc{service}}}");
            }
        }
        text + if is_subscribed { "\n" } else { " []\n" }
    }

    /// The time that handlers take for what one message of a service publishes.
    pub(crate) fn work_of_topic(&self, app: usize, service: usize) -> u64 {
        let Some(topic) = self.topic_of(app, service) else {
            return 0;
        };
        let work = |s: &SubscriberShape| {
            let on_way = self.services_behind(s.app, s.service).into_iter();
            let us = on_way.map(|(app, service)| {
                let shape = &self.apps[app];
                let service = usize::from(service.0);
                shape.services[service].service_us * u64::from(shape.attempts)
            });
            us.sum::<u64>()
        };
        topic.subscribers.iter().map(work).sum()
    }

    /// How many services on disk a publication passes through, one after the other.
    fn services_on_disk(&self, topic: &TopicShape) -> u64 {
        let is_on_disk = |app: usize, service: usize| self.apps[app].services[service].on_disk;
        let behind = |s: &SubscriberShape| {
            let behind = self.services_behind(s.app, s.service).into_iter();
            behind
                .filter(|(app, service)| is_on_disk(*app, usize::from(service.0)))
                .count()
        };
        let longest = topic.subscribers.iter().map(behind).max().unwrap_or(0);
        longest as u64 + u64::from(is_on_disk(topic.app, topic.service))
    }

    /// How many publications on a topic there are, at most.
    fn publications(&self, topic: &TopicShape) -> u64 {
        let places = self.apps[topic.app].places();
        let places = places
            .iter()
            .filter(|p| usize::from(p.service.0) == topic.service);
        let clients = self.clients.iter().filter(|c| c.app == topic.app);
        let requests: u64 = clients.map(|c| c.requests).sum();
        requests * places.count() as u64 / topic.every + 1
    }

    /// How long publications take, were all of the same key.
    pub(crate) fn publishing_time(&self) -> Nanos {
        let of_topic =
            |topic: &TopicShape| self.publications(topic) * (1 + self.services_on_disk(topic));
        PUBLICATION_TIME * self.topics.iter().map(of_topic).sum::<u64>()
    }

    /// How long they take, were all sent again at the same times, and all refused for which their subscribers
    /// have no room.
    pub(crate) fn refused_time(&self) -> Nanos {
        let of_app = |(at, app): (usize, &AppShape)| {
            let copies = |topic: &TopicShape| {
                let subscribers = topic.subscribers.iter().filter(|s| s.app == at);
                self.publications(topic) * subscribers.count() as u64
            };
            let copies: u64 = self.topics.iter().map(copies).sum();
            OUTBOUND_RETRY_AFTER_MAX * copies.div_ceil(app.admitted_max.into())
        };
        let all = self.apps.iter().enumerate().map(of_app);
        all.max().unwrap_or(Nanos::ZERO)
    }

    /// Without the application at this index.
    pub(crate) fn remove_topics_of_app(&mut self, at: usize) {
        self.topics.retain(|topic| topic.app != at);
        for topic in &mut self.topics {
            topic.app -= usize::from(topic.app > at);
            topic.subscribers.retain(|s| s.app != at);
            for subscriber in &mut topic.subscribers {
                subscriber.app -= usize::from(subscriber.app > at);
            }
        }
    }

    /// Without the services of an application from this index on.
    pub(crate) fn remove_topics_from(&mut self, app: usize, count: usize) {
        self.topics.retain(|t| t.app != app || t.service < count);
        for topic in &mut self.topics {
            topic
                .subscribers
                .retain(|s| s.app != app || s.service < count);
        }
    }
}
