"""Word lists and made-up proper names for the training text of the small model.

One responsibility: vocabulary. Sentences are built in `tools.small_model.corpus`; nothing here knows a domain. All lists were
written for this project, and the made-up names come from syllables, so the text they produce may be redistributed.

Every name belongs to exactly one split, by a checksum of its letters: a held-out name was never trained on.
"""
# ruff: noqa: SIM905 - a list of words is easier to read and to edit as one string

import random
import zlib
from collections.abc import Callable

HELD_OUT_ONE_IN = 12
"""One name in this many is kept out of training."""

GIVEN = (
    "Ada Alan Alice Amara Amir Ana Anna Arun Ben Bianca Boris Carla Carlos Chen Clara Daniel David Diego Dora "
    "Edgar Elena Elias Emma Erik Esther Fatima Felix Finn Flora Frank George Grace Greta Hana Hassan Helen Henry "
    "Hugo Ibrahim Ida Igor Ines Iris Ivan Jack Jakob James Jane Joan John Jonas Julia Kaito Karen Karl Kira Lars "
    "Laura Leila Leo Lena Linda Louis Lucia Luis Lukas Maria Mark Marta Max Maya Mei Mia Mikhail Mina Nadia Nina Noah "
    "Nora Olga Oliver Omar Oscar Paul Peter Petra Priya Rachel Raj Rosa Ruth Sam Samir Sara Simon Sofia Stefan "
    "Susan Tara Theo Tom Tomas Uma Vera Victor Wei Yara Yuki Zara Zoe José Zoë Jürgen André Łukasz Søren Chloé"
).split()
FAMILY = (
    "Abbott Adams Ahmed Andersen Baker Banerjee Becker Bennett Berg Brandt Brown Carter Castro Chang Clark Cohen "
    "Costa Cruz Dahl Diaz Dubois Eriksen Evans Fischer Fontaine Foster Fox Garcia Gomez Grant Green Gupta Haas Hall "
    "Hansen Harris Hill Hoffmann Hughes Ibarra Ito Jansen Jones Kaplan Kaur Keller Khan Kim King Klein Kovac Kumar "
    "Lang Lee Lewis Lopez Lovelace Lund Marino Martin Mason Meyer Miller Moreau Morgan Mori Murphy Nakamura Nash "
    "Nielsen Novak Okafor Olsen Ortega Park Patel Pereira Petrov Pohl Quinn Ramos Reed Reyes Rossi Roy Santos Sato "
    "Schmidt Shah Silva Singh Smith Sokolov Stone Suzuki Tanaka Taylor Torres Turner Vargas Vega Wagner Walker Wang "
    "Ward Weber White Wolf Wood Wright Yamada Young Zhang Ziegler Muñoz Müller Lindström Nováková"
).split()
CITIES = (
    "Accra Amsterdam Athens Auckland Austin Barcelona Bergen Berlin Bogota Boston Brussels Budapest Cairo Chicago "
    "Copenhagen Cork Dakar Dallas Delhi Denver Dublin Edinburgh Geneva Genoa Glasgow Hamburg Hanoi Havana Helsinki "
    "Istanbul Kyoto Lagos Leeds Lima Lisbon Ljubljana London Lyon Madrid Manila Marseille Melbourne Milan Montreal "
    "Munich Nairobi Naples Oslo Osaka Ottawa Oxford Paris Porto Prague Quito Riga Rome Rotterdam Santiago Seattle "
    "Seoul Seville Sofia Stockholm Sydney Tallinn Tokyo Toronto Tunis Turin Utrecht Valencia Vienna Vilnius Warsaw "
    "Wellington York Zagreb Zurich Malmö Kraków"
).split()
OCCUPATIONS = (
    "accountant|actor|architect|artist|astronomer|author|baker|barber|biologist|botanist|bus driver|butcher|carpenter|"
    "chef|chemist|civil engineer|clockmaker|composer|dancer|dentist|designer|doctor|economist|editor|electrician|"
    "engineer|farmer|film director|firefighter|fisherman|gardener|geologist|goldsmith|graphic designer|guitarist|"
    "historian|interpreter|jeweller|journalist|judge|lawyer|librarian|locksmith|mathematician|mechanic|midwife|"
    "music teacher|musician|nurse|optician|painter|pharmacist|photographer|physicist|pianist|pilot|plumber|poet|"
    "police officer|potter|programmer|sailor|school teacher|sculptor|shoemaker|singer|surgeon|tailor|taxi driver|"
    "teacher|translator|truck driver|veterinarian|violinist|waiter|weaver|welder|writer|zoologist"
).split("|")
ADJECTIVES = (
    "amber black blue brass bright bronze brown canvas ceramic clay copper cotton dark fine folding glass gold green "
    "grey heavy iron large leather light linen little long narrow oak old orange paper pink plain plastic purple red "
    "round rubber short silk silver small soft square steel striped tall thick thin tin violet warm white wide wooden "
    "woollen yellow"
).split()
GOODS = (
    "apron backpack basket bell belt blanket book bottle bowl box brush bucket button cable camera candle cap chair "
    "clock coat cup cushion desk drum envelope fan flute fork frame glove hammer hat jacket jar kettle key keyboard "
    "kite knife ladder lamp lantern map mat mirror mug needle notebook pan pen pencil pillow pitcher plate pot purse "
    "radio ring rope rug saddle saw scarf shelf shirt shoe shovel spoon stamp stool table teapot tent ticket torch "
    "towel toy tray umbrella vase wallet watch whistle"
).split()
GOODS_PLURAL = {"box": "boxes", "brush": "brushes", "knife": "knives", "shelf": "shelves", "torch": "torches",
                "watch": "watches"}
HAPPENINGS = (
    "annual meeting|board meeting|book fair|budget review|car inspection|chess match|choir practice|city tour|"
    "code review|concert|cooking class|dance lesson|dentist appointment|design review|dinner|exam|exhibition|farewell party|"
    "film night|fire drill|flight|football match|garden party|guided tour|interview|job interview|launch|lecture|"
    "lunch|math lesson|museum visit|opening|parents evening|phone call|piano lesson|planning session|poetry reading|"
    "press conference|project kickoff|quiz night|rehearsal|school play|science fair|staff meeting|swimming lesson|"
    "team breakfast|theatre play|training course|train|vet appointment|wedding|workshop|yoga class"
).split("|")
STREETS = (
    "Abbey Ash Baker Beech Bell Birch Bridge Castle Cedar Chapel Church Cliff Coral Elm Field Forest Garden Gate Grove "
    "Harbour Hazel High Hill Ivy Kings Lake Lime Main Maple Market Mill Moon North Oak Orchard Park Pearl Pine Queen "
    "River Rose School Silver South Spring Station Stone Sunset Temple Valley Victoria Wall Water West Willow Windmill"
).split()
STREET_KINDS = ("Street", "Road", "Lane", "Avenue", "Square", "Drive")
ANIMALS = (
    "bear cat cow crow deer dog donkey duck fox frog goat goose hare hen horse mouse otter owl pig rabbit robin seal "
    "sheep snail swan turtle wolf"
).split()
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")
MAIL_HOSTS = ("example", "mail", "post", "inbox", "letters", "office", "home", "studio", "shop", "school")
MAIL_ENDINGS = ("com", "org", "net", "de", "fr", "co.uk", "io", "eu")

_HEADS = (
    "Al Am An Ar Bal Bel Ber Bor Bran Cal Cam Cor Dal Dar Del Dor El Er Fal Fen Gal Gar Gil Gor Hal Har Hel Hol Ir Jan "
    "Jar Jo Kal Kar Kel Kor La Len Lor Lu Mal Mar Mel Mir Mor Nar Nel Nor Ol Or Pal Per Pol Ra Ral Ren Rin Ro Sal Sel "
    "Ser Sol Tal Tar Tel Tor Ul Val Van Vel Vir Wal Wen Wil Yar Zan Zel"
).split()
_MIDDLES = (
    "a e i o u ba be bi da de di do fa fe ga go ka ki ko la le li lo lu ma me mi mo na ne ni no ra re ri ro sa se si so ta te "
    "ti to va ve vi wa za"
).split()
_GIVEN_TAILS = "a an as el en ene ia ik il in ina ir is ka la len lia lin mir na nia o on ra ric rik sa ta ten us vin".split()
_FAMILY_TAILS = (
    "berg by dal der dorf er ez ford gren hart ic ing ini kin lund man mann mar mont ner nov ov ova rup sen ska ski son "
    "stad stein strom ter vik well wick worth"
).split()
_CITY_TAILS = (
    "beck berg bridge burg bury by chester dale dorf field ford fort gate grad ham haven hill holm hurst ia land mere "
    "minster mont mouth ona pool port stad stead ton view ville wick wood"
).split()
_CONSONANTS = "b c ch d dr f g gr h j k kl l m n p pr qu r s sh sk st t th tr v w x y z zh".split()
_VOWELS = "a e i o u ai ea ee ia io oo ou".split()


def is_held_out(name: str) -> bool:
    """True if the name is kept out of the training split; decided by the CRC-32 of its UTF-8 bytes."""
    return zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0


def _syllables(rng: random.Random, tails: list[str]) -> str:
    middle = rng.choice(_MIDDLES) if rng.random() < 0.5 else ""
    return rng.choice(_HEADS) + middle + rng.choice(tails)


def _odd(rng: random.Random) -> str:
    """A word of random letters: it breaks into unusual tokens, so that copying is learned for all of them."""
    word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 3)))
    return (word + rng.choice(("", "n", "r", "s", "t", "l", "ck"))).capitalize()


def _pick(rng: random.Random, known: list[str], tails: list[str]) -> str:
    draw = rng.random()
    if draw < 0.3:
        return rng.choice(known)
    return _odd(rng) if draw < 0.5 else _syllables(rng, tails)


def _in_split(rng: random.Random, held_out: bool, make: Callable[[], str]) -> str:
    while True:
        name = make()
        if is_held_out(name) == held_out:
            return name


def given_name(rng: random.Random, held_out: bool) -> str:
    """A given name: known, made of syllables, or odd."""
    return _in_split(rng, held_out, lambda: _pick(rng, GIVEN, _GIVEN_TAILS))


def family_name(rng: random.Random, held_out: bool) -> str:
    """A family name: known, made of syllables, or odd."""
    return _in_split(rng, held_out, lambda: _pick(rng, FAMILY, _FAMILY_TAILS))


def person(rng: random.Random, held_out: bool) -> str:
    """A full name of two words, or three for one in twelve."""
    middle = [given_name(rng, held_out)] if rng.random() < 1 / 12 else []
    return " ".join([given_name(rng, held_out), *middle, family_name(rng, held_out)])


def city(rng: random.Random, held_out: bool) -> str:
    """A town: known, made of syllables, or odd; one in ten with a word in front."""
    prefix = rng.choice(("New ", "Port ", "Lake ", "North ", "Old ")) if rng.random() < 0.1 else ""
    return prefix + _in_split(rng, held_out, lambda: _pick(rng, CITIES, _CITY_TAILS))


def product(rng: random.Random, held_out: bool) -> str:
    """A product in the singular, such as `steel kettle`, sometimes with a made-up brand in front."""
    def make() -> str:
        return f"{rng.choice(ADJECTIVES)} {rng.choice(GOODS)}"

    brand = _odd(rng) + " " if rng.random() < 0.1 else ""
    return brand + _in_split(rng, held_out, make)


def plural(thing: str) -> str:
    """The plural of a product: only its last word changes."""
    head, _, last = thing.rpartition(" ")
    return f"{head} {GOODS_PLURAL.get(last, last + 's')}".strip()


def article(noun: str) -> str:
    """`a` or `an` for the noun."""
    return "an" if noun[0] in "aeiou" else "a"
