//! What must be true of publications after healing: each one of an effect that took place is handled
//! once by every subscriber, and by no one if the effect did not take place. Subscribers check the order
//! as they go.

use super::Run;
use super::asks::{Asking, States, sum};
use crate::scenario::{SubscriberShape, TopicShape, app_id};
use crate::topics::{Published, received_key};
use e3_model::{ServiceId, ShardKey};
use std::collections::BTreeMap;

impl Run<'_> {
    /// Checks what came of what a message published. `witnessed` counts the keys by which that is known.
    pub(super) fn check_published(
        &self,
        states: &States,
        asking: &Asking<'_>,
        witnessed: &mut BTreeMap<ShardKey, usize>,
        published: &mut Published,
    ) -> Option<String> {
        let service = usize::from(asking.place.service.0);
        let topic = self.scenario.topic_of(asking.app, service)?;
        if !topic.is_published(asking.effect) {
            return None;
        }
        published.published += u64::from(asking.count == 1);
        let mut wrong = None;
        for subscriber in &topic.subscribers {
            let of = (topic, *subscriber);
            let here = self.check_received(states, asking, of, witnessed, published);
            wrong = wrong.or(here);
        }
        wrong
    }

    /// Checks the effects at one subscriber and behind it.
    fn check_received(
        &self,
        states: &States,
        asking: &Asking<'_>,
        (topic, subscriber): (&TopicShape, SubscriberShape),
        witnessed: &mut BTreeMap<ShardKey, usize>,
        published: &mut Published,
    ) -> Option<String> {
        let publisher = (topic.app, topic.service);
        let key = received_key(publisher, subscriber, asking.effect);
        let on_way = self
            .scenario
            .services_behind(subscriber.app, subscriber.service);
        let shape = |(app, service): &(usize, ServiceId)| {
            &self.scenario.apps[*app].services[usize::from(service.0)]
        };
        let forfeited = |(app, service): &(usize, ServiceId)| {
            let mut lost = self.cluster.ledger.forfeited.iter();
            lost.any(|((shard, _), at)| {
                (shard.app, shard.service) == (app_id(*app), *service) && asking.sent <= *at
            })
        };
        let is_lost = asking.may_repeat || on_way.iter().any(forfeited);
        let (mut can_fail, mut wrong) = (false, None);
        for place in &on_way {
            can_fail |= self.scenario.fails(place.0, shape(place));
            let (app, service) = *place;
            let effects = if shape(place).stateful {
                sum(states, app, service, &key, witnessed)
            } else if *place == on_way[0] {
                // It may run more than once, and its effects are those of services behind it.
                i64::from(self.cluster.ledger.received.contains(&key))
            } else {
                continue;
            };
            published.received += u64::from(*place == on_way[0] && effects == 1);
            let is_expected = effects == asking.count || (can_fail && effects == 0);
            if !is_expected && !is_lost {
                wrong = Some(format!(
                    "the publication of {:?} by service {} of application {}, handled {} times, has {effects} effects at {service:?} of application {app}",
                    asking.effect, topic.service, topic.app, asking.count
                ));
            }
        }
        wrong
    }
}
