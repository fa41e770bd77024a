//! Digits of a double that read back as the same double: Grisu2 (Florian Loitsch, "Printing Floating-Point Numbers
//! Quickly and Accurately with Integers", 2010).
//!
//! Nearly always these are the shortest possible digits, and among those the ones nearest to the number. In about two
//! of a thousand doubles, where 64 bits do not suffice, the last digit is off by one, or there is one digit more.
//! Redis prints scores by this algorithm since 7.2, so the texts are the same here, byte for byte.

/// A number `fraction` times two to the power of `exponent`.
#[derive(Clone, Copy)]
struct Scaled {
    fraction: u64,
    exponent: i32,
}

/// The maximum number of digits that a double needs.
const DIGITS_MAX: usize = 17;

/// Decimal digits, as an integer, times ten to the power of `scale`.
pub(super) struct Digits {
    bytes: [u8; DIGITS_MAX + 1],
    count: usize,
    /// The decimal exponent.
    pub(super) scale: i32,
}

/// The binary exponents of products are in this range, so that their integer part has at most 32 bits.
const EXPONENTS: std::ops::RangeInclusive<i32> = -60..=-32;

/// The powers of ten in the table: the first one, and the distance between them.
const POWER_FIRST: i32 = -348;
const POWER_STEP: i32 = 8;

static UNITS: [u64; 10] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
];

const FRACTION_BITS: u32 = 52;
const HIDDEN: u64 = 1 << FRACTION_BITS;
/// Exponent of the last bit of a double whose biased exponent is zero or one.
const EXPONENT_MIN: i32 = -1074;

impl Scaled {
    fn of(value: f64) -> Scaled {
        let bits = value.to_bits();
        let fraction = bits & (HIDDEN - 1);
        match (bits >> FRACTION_BITS & 0x7FF) as i32 {
            0 => Scaled {
                fraction,
                exponent: EXPONENT_MIN,
            },
            biased => Scaled {
                fraction: fraction | HIDDEN,
                exponent: EXPONENT_MIN + biased - 1,
            },
        }
    }

    /// Returns the number shifted so that its highest bit is set.
    fn normal(self) -> Scaled {
        let shift = self.fraction.leading_zeros();
        Scaled {
            fraction: self.fraction << shift,
            exponent: self.exponent - shift as i32,
        }
    }

    /// Returns the upper half of the product, rounded.
    fn times(self, other: Scaled) -> Scaled {
        let product = u128::from(self.fraction) * u128::from(other.fraction);
        Scaled {
            fraction: ((product + (1 << 63)) >> 64) as u64,
            exponent: self.exponent + other.exponent + 64,
        }
    }

    /// Returns the midpoints between this double and its neighbors, below and above, both with the exponent of the
    /// one above.
    fn boundaries(self) -> [Scaled; 2] {
        let above = Scaled {
            fraction: self.fraction * 2 + 1,
            exponent: self.exponent - 1,
        };
        let above = above.normal();
        // Just below a power of two, doubles are twice as dense.
        let bits = if self.fraction == HIDDEN { 2 } else { 1 };
        let below = (self.fraction << bits) - 1;
        let below = Scaled {
            fraction: below << (self.exponent - bits - above.exponent),
            exponent: above.exponent,
        };
        [below, above]
    }
}

/// Returns a power of ten that brings a number with this exponent into [`EXPONENTS`], and its exponent.
fn power_for(exponent: i32) -> (Scaled, i32) {
    const DIGITS_PER_BIT: f64 = std::f64::consts::LOG10_2;
    let guess = (-f64::from(exponent + POWERS.len() as i32) * DIGITS_PER_BIT) as i32;
    let mut index = ((guess - POWER_FIRST) / POWER_STEP) as usize;
    loop {
        let (fraction, power_exponent) = POWERS[index];
        let power = Scaled {
            fraction,
            exponent: i32::from(power_exponent),
        };
        let product = exponent + power.exponent + 64;
        if product < *EXPONENTS.start() {
            index += 1;
        } else if product > *EXPONENTS.end() {
            index -= 1;
        } else {
            return (power, POWER_FIRST + index as i32 * POWER_STEP);
        }
    }
}

impl Digits {
    /// Returns the digits of a finite number that is not zero; its sign does not matter.
    pub(super) fn of(value: f64) -> Digits {
        let number = Scaled::of(value.abs());
        let [below, above] = number.boundaries();
        let (power, power_of_ten) = power_for(above.exponent);
        let number = number.normal().times(power);
        let (below, above) = (below.times(power), above.times(power));
        // Products are off by up to one: use a slightly smaller interval that is surely between the boundaries.
        let (lowest, highest) = (below.fraction + 1, above.fraction - 1);
        let mut digits = Digits {
            bytes: [0; DIGITS_MAX + 1],
            count: 0,
            scale: -power_of_ten,
        };
        digits.generate(
            highest,
            highest - lowest,
            highest - number.fraction,
            -above.exponent as u32,
        );
        digits
    }

    /// Returns the digits.
    pub(super) fn text(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    fn put(&mut self, digit: u64) {
        if digit > 0 || self.count > 0 {
            self.bytes[self.count] = b'0' + digit as u8;
            self.count += 1;
        }
    }

    /// Generates as few digits of `highest`, whose last `bits` bits are after the point, as leave a remainder of at
    /// most `room`; then lowers the last digit to come as near as possible to the number, which lies `distance` below
    /// `highest`.
    fn generate(&mut self, highest: u64, mut room: u64, mut distance: u64, bits: u32) {
        let mut whole = highest >> bits;
        let mut part = highest & ((1 << bits) - 1);
        for left in (0..10).rev() {
            let unit = UNITS[left as usize];
            self.put(whole / unit);
            whole %= unit;
            let rest = (whole << bits) + part;
            if rest <= room {
                self.scale += left;
                return self.approach(room, rest, unit << bits, distance);
            }
        }
        loop {
            part *= 10;
            room *= 10;
            distance = distance.wrapping_mul(10);
            self.scale -= 1;
            self.put(part >> bits);
            part &= (1 << bits) - 1;
            if part < room {
                return self.approach(room, part, 1 << bits, distance);
            }
        }
    }

    /// Lowers the last digit while the result comes nearer to the number and stays above the lower boundary.
    fn approach(&mut self, room: u64, mut rest: u64, unit: u64, distance: u64) {
        while rest < distance
            && room - rest >= unit
            && (rest + unit < distance || distance - rest > rest + unit - distance)
        {
            self.bytes[self.count - 1] -= 1;
            rest += unit;
        }
    }
}

/// Powers of ten, rounded to 64 bits: fraction and binary exponent.
static POWERS: [(u64, i16); 87] = [
    (0xFA8F_D5A0_081C_0288, -1220),
    (0xBAAE_E17F_A23E_BF76, -1193),
    (0x8B16_FB20_3055_AC76, -1166),
    (0xCF42_894A_5DCE_35EA, -1140),
    (0x9A6B_B0AA_5565_3B2D, -1113),
    (0xE61A_CF03_3D1A_45DF, -1087),
    (0xAB70_FE17_C79A_C6CA, -1060),
    (0xFF77_B1FC_BEBC_DC4F, -1034),
    (0xBE56_91EF_416B_D60C, -1007),
    (0x8DD0_1FAD_907F_FC3C, -980),
    (0xD351_5C28_3155_9A83, -954),
    (0x9D71_AC8F_ADA6_C9B5, -927),
    (0xEA9C_2277_23EE_8BCB, -901),
    (0xAECC_4991_4078_536D, -874),
    (0x823C_1279_5DB6_CE57, -847),
    (0xC210_9436_4DFB_5637, -821),
    (0x9096_EA6F_3848_984F, -794),
    (0xD774_85CB_2582_3AC7, -768),
    (0xA086_CFCD_97BF_97F4, -741),
    (0xEF34_0A98_172A_ACE5, -715),
    (0xB238_67FB_2A35_B28E, -688),
    (0x84C8_D4DF_D2C6_3F3B, -661),
    (0xC5DD_4427_1AD3_CDBA, -635),
    (0x936B_9FCE_BB25_C996, -608),
    (0xDBAC_6C24_7D62_A584, -582),
    (0xA3AB_6658_0D5F_DAF6, -555),
    (0xF3E2_F893_DEC3_F126, -529),
    (0xB5B5_ADA8_AAFF_80B8, -502),
    (0x8762_5F05_6C7C_4A8B, -475),
    (0xC9BC_FF60_34C1_3053, -449),
    (0x964E_858C_91BA_2655, -422),
    (0xDFF9_7724_7029_7EBD, -396),
    (0xA6DF_BD9F_B8E5_B88F, -369),
    (0xF8A9_5FCF_8874_7D94, -343),
    (0xB944_7093_8FA8_9BCF, -316),
    (0x8A08_F0F8_BF0F_156B, -289),
    (0xCDB0_2555_6531_31B6, -263),
    (0x993F_E2C6_D07B_7FAC, -236),
    (0xE45C_10C4_2A2B_3B06, -210),
    (0xAA24_2499_6973_92D3, -183),
    (0xFD87_B5F2_8300_CA0E, -157),
    (0xBCE5_0864_9211_1AEB, -130),
    (0x8CBC_CC09_6F50_88CC, -103),
    (0xD1B7_1758_E219_652C, -77),
    (0x9C40_0000_0000_0000, -50),
    (0xE8D4_A510_0000_0000, -24),
    (0xAD78_EBC5_AC62_0000, 3),
    (0x813F_3978_F894_0984, 30),
    (0xC097_CE7B_C907_15B3, 56),
    (0x8F7E_32CE_7BEA_5C70, 83),
    (0xD5D2_38A4_ABE9_8068, 109),
    (0x9F4F_2726_179A_2245, 136),
    (0xED63_A231_D4C4_FB27, 162),
    (0xB0DE_6538_8CC8_ADA8, 189),
    (0x83C7_088E_1AAB_65DB, 216),
    (0xC45D_1DF9_4271_1D9A, 242),
    (0x924D_692C_A61B_E758, 269),
    (0xDA01_EE64_1A70_8DEA, 295),
    (0xA26D_A399_9AEF_774A, 322),
    (0xF209_787B_B47D_6B85, 348),
    (0xB454_E4A1_79DD_1877, 375),
    (0x865B_8692_5B9B_C5C2, 402),
    (0xC835_53C5_C896_5D3D, 428),
    (0x952A_B45C_FA97_A0B3, 455),
    (0xDE46_9FBD_99A0_5FE3, 481),
    (0xA59B_C234_DB39_8C25, 508),
    (0xF6C6_9A72_A398_9F5C, 534),
    (0xB7DC_BF53_54E9_BECE, 561),
    (0x88FC_F317_F222_41E2, 588),
    (0xCC20_CE9B_D35C_78A5, 614),
    (0x9816_5AF3_7B21_53DF, 641),
    (0xE2A0_B5DC_971F_303A, 667),
    (0xA8D9_D153_5CE3_B396, 694),
    (0xFB9B_7CD9_A4A7_443C, 720),
    (0xBB76_4C4C_A7A4_4410, 747),
    (0x8BAB_8EEF_B640_9C1A, 774),
    (0xD01F_EF10_A657_842C, 800),
    (0x9B10_A4E5_E991_3129, 827),
    (0xE710_9BFB_A19C_0C9D, 853),
    (0xAC28_20D9_623B_F429, 880),
    (0x8044_4B5E_7AA7_CF85, 907),
    (0xBF21_E440_03AC_DD2D, 933),
    (0x8E67_9C2F_5E44_FF8F, 960),
    (0xD433_179D_9C8C_B841, 986),
    (0x9E19_DB92_B4E3_1BA9, 1013),
    (0xEB96_BF6E_BADF_77D9, 1039),
    (0xAF87_023B_9BF0_EE6B, 1066),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(value: f64) -> String {
        let digits = Digits::of(value);
        let text = String::from_utf8_lossy(digits.text()).into_owned();
        format!("{text}e{}", digits.scale)
    }

    #[test]
    fn powers_are_those_of_ten() {
        for (index, (fraction, exponent)) in POWERS.iter().enumerate() {
            let power = POWER_FIRST + index as i32 * POWER_STEP;
            assert!(fraction >> 63 == 1, "10^{power}");
            // Compared as logarithms, since most of these powers are not representable as doubles.
            let log = (*fraction as f64).log2() + f64::from(*exponent);
            let expected = f64::from(power) * std::f64::consts::LOG2_10;
            assert!((log - expected).abs() < 1e-9, "10^{power}");
            if (-300..=300).contains(&power) {
                let value: f64 = format!("1e{power}").parse().expect("a number");
                let fraction = *fraction as f64 * 2_f64.powi(i32::from(*exponent) / 2);
                let ours = fraction * 2_f64.powi(i32::from(*exponent) - i32::from(*exponent) / 2);
                assert!((ours / value - 1.0).abs() < 1e-15, "10^{power}");
            }
        }
    }

    #[test]
    fn digits_are_those_of_redis() {
        // The digits of the last four are not the shortest or nearest; redis-server 7.4 prints the same.
        for (value, expected) in [
            (0.1, "1e-1"),
            (1.5, "15e-1"),
            (209.456_382_495_117_88, "20945638249511788e-14"),
            (f64::MAX, "17976931348623157e292"),
            (f64::MIN_POSITIVE, "22250738585072014e-324"),
            (5e-324, "5e-324"),
            (5_809_705.939_09, "58097059390900005e-10"),
            (72_374_551_420_278.38, "7237455142027837e-2"),
        ] {
            assert_eq!(text_of(value), expected, "{value}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn digits_read_back_as_the_number(bits: u64) {
            let value = f64::from_bits(bits);
            if value.is_finite() && value != 0.0 {
                let text = text_of(value);
                prop_assert_eq!(text.parse::<f64>().ok(), Some(value.abs()), "{}", text);
                prop_assert!(Digits::of(value).text().len() <= DIGITS_MAX);
            }
        }
    }
}
