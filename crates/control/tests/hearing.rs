//! Heartbeats of members and of strangers.

use crate::script::Script;
use e3_control::{
    Command, Control, Heard, Hearing, LastPulse, Membership, NodeLoad, Orchestrator, Pulse, Sender,
};
use e3_model::timing::SILENT_TURNS_MIN;
use e3_model::{Nanos, NodeId, Timestamp};
use std::collections::BTreeMap;

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const NOW: Timestamp = Timestamp(100_000_000_000);
const LOAD: NodeLoad = NodeLoad {
    queue_len: 7,
    busy_permille: 500,
    port_permille: 30,
};

fn pulse(control: &Control, node: NodeId) -> Pulse {
    Pulse {
        cluster: control.cluster,
        node,
        incarnation: 1,
        sequence: 1,
        load: LOAD,
        plan_version_low: 1,
    }
}

fn hear(hearing: &mut Hearing, control: &Control, pulses: &[Pulse]) -> Vec<Heard> {
    let mut heard = Vec::new();
    hearing.on_pulses(NOW, control, pulses, &mut heard);
    heard
}

#[test]
fn only_the_present_process_of_a_member_is_heard() {
    let mut script = Script::up(&["s1-host", "s1-nic0"]);
    let membership = Membership::new(NOW, Nanos::from_secs(5));
    let mut hearing = Hearing::new(membership, Orchestrator::new(&script.control));
    let of = |control: &Control, node| pulse(control, node);
    let strangers = {
        let good = of(&script.control, A);
        [
            Pulse {
                cluster: good.cluster + 1,
                plan_version_low: u32::MAX / 2,
                ..good
            },
            Pulse {
                incarnation: 2,
                ..good
            },
            Pulse {
                node: NodeId(1_000_000),
                ..good
            },
        ]
    };
    let stranger = Heard {
        sender: Sender::Stranger,
        missing: None,
    };
    let heard = hear(&mut hearing, &script.control, &strangers);
    assert_eq!(heard, [stranger; 3]);
    assert_eq!(hearing.membership.heard(A, 1), None);
    assert_eq!(hearing.last(A), None);

    // Another cluster's shows nothing of this one's; a later process of a node excuses the one before.
    let start = || {
        let mut membership = Membership::new(NOW, Nanos::from_secs(5));
        let later = NOW + Nanos::from_secs(6);
        for turn in 0..=SILENT_TURNS_MIN {
            membership.lost(later + Nanos(turn), &script.control);
        }
        membership.on_heartbeat(later, B, 1);
        membership.on_plan_request(B, 1, &script.control);
        Hearing::new(membership, Orchestrator::new(&script.control))
    };
    for (pulse, settles) in [
        (
            Pulse {
                incarnation: 2,
                ..strangers[0]
            },
            false,
        ),
        (strangers[1], true),
    ] {
        let mut hearing = start();
        hear(&mut hearing, &script.control, &[pulse]);
        let now = NOW + Nanos::from_secs(7);
        assert_eq!(hearing.membership.is_settled(now, &script.control), settles);
    }

    let good = of(&script.control, A);
    let heard = hear(&mut hearing, &script.control, &[strangers[1], good]);
    assert_eq!((heard[0], heard[1].sender), (stranger, Sender::Present));
    assert_eq!(hearing.membership.heard(A, 1), Some(NOW));
    assert_eq!(hearing.membership.heard(B, 1), None);
    let last = LastPulse {
        load: LOAD,
        plan_version_low: 1,
    };
    assert_eq!((hearing.last(A), hearing.last(B)), (Some(last), None));
    hearing.forget(A);
    assert_eq!(hearing.last(A), None);

    // A loss that the state records is seen at the next heartbeat.
    let lose = Command::Lose {
        nodes: BTreeMap::from([(B, 1)]),
        at: NOW,
    };
    script.control.apply(&lose).unwrap();
    let both = [A, B].map(|node| Pulse {
        sequence: 2,
        ..of(&script.control, node)
    });
    let senders: Vec<Sender> = hear(&mut hearing, &script.control, &both)
        .iter()
        .map(|h| h.sender)
        .collect();
    assert_eq!(senders, [Sender::Present, Sender::Silent]);
}

#[test]
fn a_node_that_has_applied_a_later_plan_shows_that_the_log_lacks_decisions() {
    let script = Script::up(&["s1-host"]);
    let control = &script.control;
    let membership = Membership::new(NOW, Nanos::from_secs(5));
    let mut hearing = Hearing::new(membership, Orchestrator::new(control));
    let later = Pulse {
        // A process that is not known yet may be the one that has joined with these decisions.
        incarnation: 9,
        plan_version_low: control.version as u32 + 3,
        ..pulse(control, A)
    };
    let heard = hear(&mut hearing, control, &[later]);
    let expected = Heard {
        sender: Sender::Stranger,
        missing: Some(control.version + 3),
    };
    assert_eq!(heard, [expected]);
}

#[test]
fn a_heartbeat_that_comes_again_does_not_count() {
    let mut script = Script::up(&["s1-host", "s1-nic0"]);
    let membership = Membership::new(NOW, Nanos::from_secs(5));
    let mut hearing = Hearing::new(membership, Orchestrator::new(&script.control));
    let mut sender = |control: &Control, incarnation, sequence| {
        let pulse = Pulse {
            incarnation,
            sequence,
            ..pulse(control, A)
        };
        hear(&mut hearing, control, &[pulse])[0].sender
    };
    // Before its format has numbers they are all 0.
    assert_eq!(sender(&script.control, 1, 0), Sender::Present);
    assert_eq!(sender(&script.control, 1, 0), Sender::Present);
    assert_eq!(sender(&script.control, 1, 5), Sender::Present);
    for late in [5, 4, 1, 0] {
        assert_eq!(sender(&script.control, 1, late), Sender::Late, "{late}");
    }
    assert_eq!(sender(&script.control, 1, 6), Sender::Present);
    script.restart(A);
    assert_eq!(sender(&script.control, 1, 7), Sender::Stranger);
    assert_eq!(sender(&script.control, 2, 1), Sender::Present);
    assert_eq!(sender(&script.control, 2, 1), Sender::Late);
}
