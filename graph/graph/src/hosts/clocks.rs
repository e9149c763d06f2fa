// SPDX-License-Identifier: MIT
//! How the clock of one host stands to that of another, by what they sent each other.
//!
//! Nothing is received before it is sent: each message bounds the difference of the clocks, from
//! below or from above by its direction. A bound holds at its own time, and around it as far as
//! clocks can drift. Nobody's idea of the time of day is believed.

/// A clock gains or loses at most one part in so many against another: the kernel lets NTP change
/// the rate of CLOCK_MONOTONIC by 500 parts per million on each host.
const DRIFT: u64 = 1000;
/// Times at which the difference is worked out, at most; and the shortest step between them, ns.
const MOST_KNOTS: u64 = 1 << 16;
const SHORTEST_STEP: u64 = 1_000_000;

/// At a time of the second host's clock: what is added to it to get the first host's is at least
/// (or at most) so much; ns.
pub(crate) type Bound = (u64, i64);

/// What turns times of one host into those of another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clock {
    first: u64,
    step: u64,
    /// What is added at `first` and every `step` after it.
    knots: Vec<i64>,
    /// How much is not known of it while messages went both ways: at best, and at worst.
    pub widths: (u64, u64),
}

/// Why two clocks can't be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// No message was paired.
    NoExchange,
    /// All messages went one way.
    OneWay,
    /// No clocks that drift so little received what was sent: by so many ns at this time.
    Contradiction(u64, u64),
}

impl Clock {
    /// Of hosts with the same clock.
    pub fn same() -> Clock {
        Clock {
            first: 0,
            step: SHORTEST_STEP,
            knots: vec![0],
            widths: (0, 0),
        }
    }

    /// From a span of times of the second host, and bounds of what is to be added.
    pub fn between(
        span: (u64, u64),
        least: &[Bound],
        most: &[Bound],
    ) -> std::result::Result<Clock, Unknown> {
        if least.is_empty() || most.is_empty() {
            let none = least.is_empty() && most.is_empty();
            return Err(if none {
                Unknown::NoExchange
            } else {
                Unknown::OneWay
            });
        }
        let times = || least.iter().chain(most).map(|bound| bound.0);
        let first = times().min().map_or(span.0, |time| time.min(span.0));
        let last = times().max().map_or(span.1, |time| time.max(span.1));
        let step = ((last - first) / MOST_KNOTS).max(SHORTEST_STEP);
        let knots = ((last - first) / step + 2) as usize;
        let lower = envelope(first, step, knots, least);
        let negated: Vec<Bound> = most.iter().map(|&(time, bound)| (time, -bound)).collect();
        let upper = envelope(first, step, knots, &negated);
        let widths: Vec<i64> = lower.iter().zip(&upper).map(|(l, u)| -u - l).collect();
        let tightest = widths.iter().zip(0u64..).min_by_key(|(width, _)| **width);
        if let Some((width, knot)) = tightest.filter(|(width, _)| **width < 0) {
            let at = first + knot * step;
            return Err(Unknown::Contradiction(width.unsigned_abs(), at));
        }
        let both = [least, most].map(|all| {
            let times = || all.iter().map(|bound| bound.0);
            (times().min().unwrap_or(0), times().max().unwrap_or(0))
        });
        let knot = |time: u64| ((time - first) / step) as usize;
        let from = knot(both[0].0.max(both[1].0));
        let to = knot(both[0].1.min(both[1].1));
        let meant = &widths[from.min(to)..=from.max(to)];
        let width = |one: Option<&i64>| one.map_or(0, |width| width.unsigned_abs());
        Ok(Clock {
            first,
            step,
            knots: lower.iter().zip(&widths).map(|(l, w)| l + w / 2).collect(),
            widths: (width(meant.iter().min()), width(meant.iter().max())),
        })
    }

    /// The other host's time.
    pub fn of(&self, time: u64) -> u64 {
        let since = time.saturating_sub(self.first);
        let place = ((since / self.step) as usize).min(self.knots.len() - 1);
        let here = self.knots[place];
        let next = self.knots.get(place + 1).copied().unwrap_or(here);
        let part = (since - place as u64 * self.step).min(self.step);
        let more = i128::from(next - here) * i128::from(part) / i128::from(self.step);
        time.saturating_add_signed(here + more as i64)
    }

    /// Between two knots a time may be so wrong beyond that; ns.
    pub fn rough(&self) -> u64 {
        self.step / DRIFT
    }
}

/// At each knot the greatest lower bound that any of the given ones leaves there.
fn envelope(first: u64, step: u64, knots: usize, bounds: &[Bound]) -> Vec<i64> {
    const NONE: i64 = i64::MIN / 2;
    let lost = |ns: u64| (ns / DRIFT) as i64;
    let mut all = vec![NONE; knots];
    for &(time, bound) in bounds {
        let since = time - first;
        let place = (since / step) as usize;
        let part = since % step;
        all[place] = all[place].max(bound - lost(part));
        all[place + 1] = all[place + 1].max(bound - lost(step - part));
    }
    for knot in 1..knots {
        all[knot] = all[knot].max(all[knot - 1] - lost(step));
    }
    for knot in (1..knots).rev() {
        all[knot - 1] = all[knot - 1].max(all[knot] - lost(step));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const BEGIN: u64 = 20_000_000 * MS;
    const SPAN: (u64, u64) = (BEGIN, BEGIN + 6000 * MS);

    /// Of a clock to which `offset` and one part in `drift` is to be added: messages every 10 ms in
    /// both directions, each between `quick` and `quick` + 200 us under way.
    fn bounds(offset: i64, drift: i64, quick: i64) -> [Vec<Bound>; 2] {
        let times = (0..500u64).map(|turn| BEGIN + turn * 10 * MS);
        let truth = |time: u64| offset + (time - BEGIN) as i64 / drift;
        let late = |turn: u64| quick + (turn as i64 * 7919) % 200_000;
        let times: Vec<(u64, u64)> = times.zip(0..).collect();
        let one = times.iter().map(|&(t, n)| (t, truth(t) - late(n)));
        let other = times.iter().map(|&(t, n)| (t, truth(t) + late(n + 3)));
        [one.collect(), other.collect()]
    }

    #[test]
    fn a_drifting_clock_is_followed_within_the_width_that_is_told() {
        for (offset, drift) in [
            (-7_000_000_000, 5_000),
            (3_000_000_000, -5_000),
            (0, 1 << 40),
        ] {
            let [least, most] = bounds(offset, drift, 20_000);
            let clock = Clock::between(SPAN, &least, &most).unwrap();
            let (best, worst) = clock.widths;
            assert!(best >= 40_000 && worst < 500_000, "{:?}", clock.widths);
            for time in (BEGIN..BEGIN + 4990 * MS).step_by(3_333_333) {
                let truth = time as i64 + offset + (time - BEGIN) as i64 / drift;
                let error = truth.abs_diff(clock.of(time) as i64);
                assert!(error <= worst / 2 + clock.rough(), "{error}");
            }
        }
    }

    #[test]
    fn no_message_is_received_before_it_is_sent() {
        let [least, most] = bounds(5_000_000_000, 20_000, 1_000);
        let clock = Clock::between(SPAN, &least, &most).unwrap();
        for (bounds, sign) in [(least, 1), (most, -1)] {
            for (time, bound) in bounds {
                let added = clock.of(time) as i64 - time as i64;
                assert!((added - bound) * sign >= -(clock.rough() as i64));
            }
        }
    }

    #[test]
    fn what_can_t_be_is_said() {
        let [least, most] = bounds(0, 1 << 40, 20_000);
        let of = |least: &[Bound], most: &[Bound]| Clock::between(SPAN, least, most);
        assert_eq!(of(&[], &[]), Err(Unknown::NoExchange));
        assert_eq!(of(&least, &[]), Err(Unknown::OneWay));
        assert_eq!(of(&[], &most), Err(Unknown::OneWay));
        // A clock that was set forward by a second midway.
        let half = least.len() / 2;
        let set = |bounds: &[Bound]| -> Vec<Bound> {
            let moved = bounds[half..].iter().map(|&(t, b)| (t, b + 1_000_000_000));
            bounds[..half].iter().copied().chain(moved).collect()
        };
        let Err(Unknown::Contradiction(by, _)) = of(&set(&least), &set(&most)) else {
            panic!("clocks are not set");
        };
        assert!((900_000_000..=1_000_000_000).contains(&by), "{by}");
    }

    #[test]
    fn hosts_with_one_clock_have_the_same_times() {
        assert_eq!(
            [0, 5, 1 << 60].map(|t| Clock::same().of(t)),
            [0, 5, 1 << 60]
        );
    }
}
