//! What the API says of topics: who publishes, and who is subscribed.

use crate::core::Core;
use e3_control::AppState;
use e3_model::api::{SubscriptionView, TopicView};
use e3_model::topic::Topic;

impl Core {
    /// The topics of an application, in the manifest's order.
    pub(crate) fn topic_views(&self, state: &AppState) -> Vec<TopicView> {
        let app = &state.plan.app;
        let view = |name: &String| {
            let publishes = app.spec.services.iter();
            let publishes = publishes.filter(|s| s.publishes.contains(name));
            let topic = Topic {
                application: app.name.clone(),
                name: name.clone(),
            };
            TopicView {
                name: name.clone(),
                publishers: publishes.map(|s| s.name.clone()).collect(),
                subscribers: self.subscribers(&topic),
            }
        };
        app.spec.topics.iter().map(view).collect()
    }

    /// `app/service` of all services that are subscribed to a topic.
    fn subscribers(&self, topic: &Topic) -> Vec<String> {
        let apps = self.control.apps.values().map(|state| &state.plan.app);
        let of_app = apps.flat_map(|app| {
            let services = app.subscribers(topic);
            services.map(move |id| format!("{}/{}", app.name, app.service(id).name))
        });
        of_app.collect()
    }

    /// The subscriptions of an application, in the manifest's order.
    pub(crate) fn subscription_views(&self, state: &AppState) -> Vec<SubscriptionView> {
        let app = &state.plan.app;
        let view = |subscription: &e3_model::application::Subscription| {
            let topic = app.topic_of(subscription);
            let publisher = self.control.app_named(&topic.application);
            let publisher = publisher.map(|id| &self.control.apps[&id].plan.app);
            SubscriptionView {
                topic: topic.to_string(),
                service: subscription.service.clone(),
                exists: publisher.is_some_and(|app| app.spec.topics.contains(&topic.name)),
            }
        };
        app.spec.subscriptions.iter().map(view).collect()
    }
}
