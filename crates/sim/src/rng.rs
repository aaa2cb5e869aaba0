//! The one source of chance: xoshiro256++ seeded by splitmix64. Every part of a run draws from a fork of the run's own
//! generator, so that one part drawing more or less leaves the others alone.

use std::ops::RangeInclusive;

/// A deterministic generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of a seed. Neighbouring seeds give unrelated streams.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = [0; 4].map(|_: u64| splitmix(&mut mix));
        Self { state }
    }

    /// A generator of its own for another part of the run.
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a choice among nothing");
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number of the range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end() - range.start();
        range.start() + if span == u64::MAX { self.draw() } else { self.below(span + 1) }
    }

    /// A number of the range whose magnitude is uniform: as likely between 1 and 2 as between 1000 and 2000.
    pub fn magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        let bits = |number: u64| u64::from(u64::BITS - number.leading_zeros());
        let length = self.within(bits(low)..=bits(high));
        let ceiling = u64::MAX.checked_shr(64 - length as u32).unwrap_or(0);
        self.within(low.max(ceiling / 2 + ceiling % 2)..=high.min(ceiling))
    }

    /// True so many times in a thousand.
    pub fn per_mille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// True every second time.
    pub fn coin(&mut self) -> bool {
        self.draw() & 1 == 1
    }

    /// One of the choices, of which there must be one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_another_seed_another() {
        let stream = |seed| {
            (0..8)
                .map({
                    let mut rng = Rng::new(seed);
                    move |_| rng.draw()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_both_ends() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 4];
        for _ in 0..1000 {
            seen[rng.within(3..=6) as usize - 3] = true;
            assert!((10..=1000).contains(&rng.magnitude(10..=1000)));
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(rng.within(5..=5), 5);
        assert_eq!(rng.magnitude(5..=5), 5);
        assert_eq!(rng.magnitude(0..=0), 0);
        let small = (0..1000).filter(|_| rng.magnitude(1..=1 << 20) < 1 << 10).count();
        assert!((400..600).contains(&small), "{small} of 1000 in the lower half of the magnitudes");
    }
}
