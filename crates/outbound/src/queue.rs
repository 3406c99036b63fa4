//! Requests in order of their next attempt, and the threads that perform them.

use crate::attempt::Client;
use crate::limits::{HOST_REQUESTS_MAX, THREADS_MAX};
use crate::request::{Answered, Attempts, Next, Progress, Request};
use e3_model::http_access::HttpUrl;
use e3_random::Random;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// What the threads share.
pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    /// Something to do, or the end.
    pub(crate) changed: Condvar,
    pub(crate) client: Client,
    pub(crate) answers: Sender<Answered>,
    pub(crate) wake: Box<dyn Fn() + Send + Sync>,
}

/// A request between two attempts.
pub(crate) struct Job {
    request: Request,
    number: u64,
    /// Host and port.
    place: String,
    progress: Progress,
    draw: Random,
}

/// A request without an answer.
struct Ticket {
    /// Its number.
    number: u64,
    attempts: Attempts,
}

/// Requests in progress.
#[derive(Default)]
pub(crate) struct Queue {
    /// By the time of the next attempt, then in order.
    due: BTreeMap<(Instant, u64), Job>,
    /// Those without an answer, by ticket.
    tickets: BTreeMap<u64, Ticket>,
    /// Attempts in flight, by host and port.
    running: BTreeMap<String, usize>,
    threads: usize,
    threads_max: usize,
    idle: usize,
    numbers: u64,
    is_stopped: bool,
}

impl Queue {
    /// No requests and no threads.
    pub(crate) fn new() -> Queue {
        Queue {
            threads_max: THREADS_MAX,
            ..Queue::default()
        }
    }

    /// Requests without an answer.
    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Adds a request, due now.
    pub(crate) fn push(&mut self, request: Request) {
        self.numbers += 1;
        let number = self.numbers;
        let attempts = Attempts::default();
        let ticket = Ticket { number, attempts };
        self.tickets.insert(request.ticket, ticket);
        let url = HttpUrl::parse(&request.http.url);
        let place = url.map_or_else(
            |_| String::new(),
            |url| format!("{}:{}", url.host, url.port),
        );
        // Requests that fail together are not to be repeated together.
        let seed = request.idempotency_key.bytes();
        let seed = seed.fold(number, |hash, b| {
            hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(b)
        });
        let may_be_sent = request.may_be_sent;
        let job = Job {
            request,
            number,
            place,
            progress: Progress::new(may_be_sent),
            draw: Random::new(seed),
        };
        self.due.insert((Instant::now(), number), job);
    }

    /// Gives a request up.
    pub(crate) fn cancel(&mut self, ticket: u64) {
        if let Some(Ticket { number, .. }) = self.tickets.remove(&ticket) {
            self.due.retain(|(_, n), _| *n != number);
        }
    }

    /// Forgets a request that has an answer; whether it was still wanted.
    pub(crate) fn finish(&mut self, ticket: u64, number: u64) -> bool {
        let is_wanted = self.is_wanted(ticket, number);
        if is_wanted {
            self.tickets.remove(&ticket);
        }
        is_wanted
    }

    fn is_wanted(&self, ticket: u64, number: u64) -> bool {
        let of_ticket = self.tickets.get(&ticket);
        of_ticket.is_some_and(|t| t.number == number)
    }

    /// The attempts at a request without an answer.
    pub(crate) fn attempts(&self, ticket: u64) -> Option<Attempts> {
        Some(self.tickets.get(&ticket)?.attempts.clone())
    }

    /// Ends the threads.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.due.clear();
        self.tickets.clear();
    }

    /// Whether more threads have something to do than wait for it. One waits for attempts that are not
    /// due yet, since all others may be held up by servers.
    fn needs_thread(&self, now: Instant) -> bool {
        let due = self.due.keys().take_while(|(at, _)| *at <= now);
        let due = due.take(self.idle + 1).count();
        let later = usize::from(self.next_due(now).is_some());
        self.threads < self.threads_max && due + later > self.idle
    }

    /// Whether requests wait and no thread will ever look at them.
    pub(crate) fn is_stuck(&self) -> bool {
        self.threads == 0 && !self.due.is_empty()
    }

    /// Ends a request whose deadline has passed before its next attempt.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Answered> {
        let mut due = self.due.iter();
        let (place, _) = due.find(|(_, job)| job.request.deadline <= now)?;
        let place = *place;
        let mut job = self.due.remove(&place)?;
        self.tickets.remove(&job.request.ticket);
        let next = job.progress.give_up();
        job.answered(next)
    }

    /// The next attempt that is due, at a host with room for it.
    fn next(&mut self, now: Instant) -> Option<Job> {
        let has_room = |job: &Job| {
            let running = self.running.get(&job.place);
            running.is_none_or(|count| *count < HOST_REQUESTS_MAX)
        };
        let mut due = self.due.iter().take_while(|((at, _), _)| *at <= now);
        let (place, _) = due.find(|(_, job)| has_room(job))?;
        let place = *place;
        let job = self.due.remove(&place)?;
        *self.running.entry(job.place.clone()).or_default() += 1;
        if let Some(ticket) = self.tickets.get_mut(&job.request.ticket) {
            ticket.attempts.count = ticket.attempts.count.saturating_add(1);
            ticket.attempts.next = None;
        }
        Some(job)
    }

    /// When the next attempt is due that is not yet.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let (at, _) = self.due.range((now, u64::MAX)..).next()?.0;
        Some(*at)
    }

    /// An attempt has ended: goes on with its request, if it is still wanted.
    fn ended(&mut self, job: Job, next: Next) -> Option<Answered> {
        if let Some(count) = self.running.get_mut(&job.place) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(&job.place);
            }
        }
        let (ticket, number) = (job.request.ticket, job.number);
        let of_ticket = self.tickets.get_mut(&ticket);
        let shown = of_ticket.filter(|t| t.number == number)?;
        match next {
            Next::Again(at) => {
                shown.attempts.next = Some(at);
                shown.attempts.last_error = job.progress.last_error().map(String::from);
                self.due.insert((at, number), job);
                None
            }
            end => job.answered(end),
        }
    }
}

impl Job {
    /// The answer, if the request has ended.
    fn answered(self, next: Next) -> Option<Answered> {
        match next {
            Next::Again(_) => None,
            Next::End(answer, payload) => Some(Answered {
                ticket: self.request.ticket,
                answer,
                payload,
                number: self.number,
            }),
        }
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change is complete before anything in it could panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a thread, or starts one if too few wait. If the system has none left, those that there are
    /// do the work.
    pub(crate) fn call_thread(self: &Arc<Shared>, queue: &mut Queue) {
        if queue.needs_thread(Instant::now()) {
            let thread = thread::Builder::new().name("e3-outbound".into());
            let work = self.clone();
            if thread.spawn(move || work.run()).is_ok() {
                queue.threads += 1;
            }
        }
        self.changed.notify_one();
    }

    /// Performs attempts until the end.
    fn run(self: Arc<Shared>) {
        let mut queue = self.lock();
        while !queue.is_stopped {
            let now = Instant::now();
            if let Some(mut job) = queue.next(now) {
                self.call_thread(&mut queue);
                drop(queue);
                let next = self.attempt(&mut job);
                queue = self.lock();
                if let Some(answered) = queue.ended(job, next) {
                    // Nobody takes it at the end.
                    let _ = self.answers.send(answered);
                    (self.wake)();
                }
                // Another attempt may have waited for room at its host.
                self.changed.notify_one();
                continue;
            }
            queue.idle += 1;
            queue = match queue.next_due(now) {
                Some(at) => {
                    let waited = self.changed.wait_timeout(queue, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(queue);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            queue.idle -= 1;
        }
    }

    fn attempt(&self, job: &mut Job) -> Next {
        let Job {
            request,
            progress,
            draw,
            ..
        } = job;
        let left = request.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return progress.give_up();
        }
        let attempt = self.client.attempt(request, left);
        progress.on_attempt(attempt, Instant::now(), request.deadline, draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outbound;
    use e3_model::Outcome;
    use e3_model::outbound::{HttpMethod, HttpRequest};
    use std::sync::mpsc;
    use std::time::Duration;
    use ureq::config::Config;
    use ureq::http::Uri;
    use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
    use ureq::unversioned::transport::NextTimeout;

    #[derive(Debug)]
    struct Panics;

    impl Resolver for Panics {
        fn resolve(
            &self,
            _: &Uri,
            _: &Config,
            _: NextTimeout,
        ) -> Result<ResolvedSocketAddrs, ureq::Error> {
            panic!("on purpose")
        }
    }

    /// A request that can wait for this long.
    fn request(wait: Duration) -> Request {
        Request {
            ticket: 1,
            http: HttpRequest {
                method: HttpMethod::Post,
                url: "http://127.0.0.1:1/".into(),
                headers: Vec::new(),
            },
            body: Vec::new(),
            deadline: Instant::now() + wait,
            idempotency_key: "key".into(),
            may_be_sent: false,
        }
    }

    #[test]
    fn without_a_thread_a_request_ends_at_its_deadline_and_a_later_thread_performs_the_others() {
        let (sender, bell) = mpsc::channel();
        let mut outbound = Outbound::new("1", move || {
            let _ = sender.send(());
        });
        outbound.shared.lock().threads_max = 0;
        outbound.start(request(Duration::ZERO));
        let answered = outbound.poll().unwrap();
        assert_eq!(answered.answer.outcome, Outcome::Expired);
        assert!(outbound.is_empty());
        outbound.start(request(Duration::from_millis(300)));
        assert_eq!(outbound.poll(), None);
        outbound.shared.lock().threads_max = 1;
        assert_eq!(outbound.poll(), None);
        bell.recv_timeout(Duration::from_secs(60)).unwrap();
        let answered = outbound.poll().unwrap();
        let why = String::from_utf8(answered.payload).unwrap();
        assert!(why.contains("refused"), "an attempt was made: {why}");
    }

    #[test]
    fn an_attempt_that_panics_before_it_has_a_connection_has_not_reached_the_server() {
        let (sender, bell) = mpsc::channel();
        let client = Client::with_resolver("1", Panics);
        let mut outbound = Outbound::with(client, move || {
            let _ = sender.send(());
        });
        outbound.start(request(Duration::from_millis(300)));
        bell.recv_timeout(Duration::from_secs(60)).unwrap();
        let answered = outbound.poll().unwrap();
        assert_eq!(answered.answer.outcome, Outcome::Expired);
        let why = String::from_utf8(answered.payload).unwrap();
        assert!(why.contains("the attempt panicked"), "{why}");
        assert!(outbound.shared.lock().running.is_empty());
    }
}
