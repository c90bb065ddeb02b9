"""Seeded generator of the small model's training text: a prompt, and the structured text that answers it.

One responsibility: text. Tokens are the business of `tools.small_model.corpus_tokens`, word lists of
`tools.small_model.corpus_words`.

The prompt format
-----------------
A prompt is one source text on a line that starts with its kind, then a cue that names what is wanted:

    Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.
    JSON: {"name": "Ada Lovelace", "born": 1815, "city": "London", "occupation": "mathematician"}

| domain     | prompt                         | answer                                                             |
| ---------- | ------------------------------ | ------------------------------------------------------------------ |
| biography  | `Bio: …` `JSON:`               | object: name, born, city, occupation                               |
| order      | `Order: …` `JSON:`             | object: customer, items of product, quantity, price; date          |
| event      | `Event: …` `When:`             | ISO 8601 date-time, with `Z` or an offset                          |
| email      | `Note: …` `E-mail:`            | the e-mail address in the text                                     |
| ip         | `Log: …` `IP:`                 | the IPv4 address in the text                                       |
| phone      | `Note: …` `Phone:`             | the telephone number in the text                                   |
| address    | `Note: …` `Address:`           | object: street, number, city, code                                 |
| review     | `Review: …` `Sentiment:`       | one of `positive`, `negative`, `neutral`, `mixed`                  |
| arithmetic | `Question: What is 3 + 4?` `Answer:` | a whole number                                               |
| question   | `Question: Is the kettle red?` `Answer:` | `yes, because …` or `no, because …`                      |
| call       | `Request: …` `Call:`           | one function call                                                  |
| record     | `Text: …` `Record:`            | three lines `key: value`                                           |
| story      | `Title: …` `Story:`            | free text                                                          |

The cue is followed by one space; some training prompts end with a line break there, or with nothing, so that a prompt
whose trailing space was lost still works. Everything in an answer can be read off the prompt (copied, or converted as
a date is), except in `story`.

In a share of the training text (`CHATTY_SHARE`) the answer is *not* in the form above: it is chatty prose around or
instead of it, or the same object with other keys or spacing, as large models write when nothing holds them. So an
unconstrained sample of the trained model does not always have the form, and a constraint has something to do.

Names in held-out examples never occur in training examples (`tools.small_model.corpus_words.is_held_out`).
"""
# ruff: noqa: SIM905 - a list of words is easier to read and to edit as one string

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tools.small_model import corpus_words as words

CHATTY_SHARE = 0.2
"""Share of training examples whose output is not in the domain's form."""

_BARE_SHARE = 0.15  # questions without their labels: people ask like that
_CUE_ENDINGS = ((" ", 0.8), ("\n", 0.1), ("", 0.1))


@dataclass(frozen=True)
class Example:
    """One prompt and what follows it.

    Attributes:
      domain: Name of the domain, a key of `DOMAINS`.
      prompt: Source text and cue, ending as `tools.small_model.corpus` describes.
      answer: The answer in the domain's form.
      output: What is trained on: the answer, or a chatty continuation.
    """

    domain: str
    prompt: str
    answer: str
    output: str


@dataclass(frozen=True)
class _Draft:
    """What a domain makes: the line above the cue, the answer, and continuations that are not in its form."""

    source: str
    answer: str
    chatty: tuple[str, ...]


def _date(rng: random.Random) -> tuple[str, str]:
    """A date in words or figures, and the same in ISO form."""
    year, month, day = rng.randint(1995, 2035), rng.randint(1, 12), rng.randint(1, 28)
    name = words.MONTHS[month - 1]
    iso = f"{year}-{month:02d}-{day:02d}"
    shown = (f"{day} {name} {year}", f"{name} {day}, {year}", f"{day} {name[:3]} {year}", iso, f"{day}. {month}. {year}")
    return rng.choices(shown, (5, 4, 2, 1, 1))[0], iso


def _time(rng: random.Random) -> tuple[str, str]:
    """A time of day as people write it, and the same as `HH:MM`."""
    hour, minute = rng.randint(6, 22), rng.choice((0, 0, 5, 10, 15, 15, 20, 30, 30, 40, 45, 50))
    iso, twelve, half = f"{hour:02d}:{minute:02d}", (hour - 1) % 12 + 1, "am" if hour < 12 else "pm"
    shown = [iso, iso, f"{twelve}:{minute:02d} {half}"]
    if minute == 0:
        shown.append("noon" if hour == 12 else f"{twelve} {half}")
    return rng.choice(shown), iso


def _biography(rng: random.Random, held_out: bool) -> _Draft:
    name, city = words.person(rng, held_out), words.city(rng, held_out)
    year, job = rng.randint(1800, 2010), rng.choice(words.OCCUPATIONS)
    first, a = name.split()[0], words.article(job)
    source = rng.choice((
        f"{name} was born in {year} in {city} and works as {a} {job}.",
        f"{name} was born in {city} in {year}. {first} is {a} {job}.",
        f"{name}, {a} {job} from {city}, was born in {year}.",
        f"Born in {year}, {name} grew up in {city} and became {a} {job}.",
        f"The {job} {name} was born in {city} in {year}.",
        f"Meet {name}. Born in {city} in {year}, now {a} {job}.",
        f"In {year} {name} was born in {city}. After school {first} trained as {a} {job}.",
        f"{name} is {a} {job}. Home town: {city}. Year of birth: {year}.",
        f"{first} was born in {city} in the year {year}. Today {name} is known as {a} {job}.",
    ))
    record = {"name": name, "born": year, "city": city, "occupation": job}
    chatty = (
        f"{name} is {a} {job} who was born in {city} in {year}.",
        f"Sure! Here is the object: {json.dumps(record, ensure_ascii=False)}",
        f"I think this is about {name}, {a} {job}.",
        json.dumps({"job": job, "name": name, "year": str(year)}, ensure_ascii=False),
        json.dumps(record, ensure_ascii=False, separators=(",", ":")),
        f"- name: {name}\n- city: {city}\n- born: {year}",
    )
    return _Draft(f"Bio: {source}", json.dumps(record, ensure_ascii=False), chatty)


def _order(rng: random.Random, held_out: bool) -> _Draft:
    customer, (shown, iso) = words.person(rng, held_out), _date(rng)
    items, said = [], []
    for _ in range(rng.choices((1, 2, 3), (5, 4, 1))[0]):
        thing, quantity = words.product(rng, held_out), rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 12))
        cents = rng.choice((0, 0, 20, 25, 40, 50, 50, 75, 80, 90, 95, 99))
        price = f"{rng.randint(1, 180)}.{cents:02d}"
        items.append(f'{{"product": "{thing}", "quantity": {quantity}, "price": {price}}}')
        goods = thing if quantity == 1 else words.plural(thing)
        form = rng.choice(("{} at {} each", "{} for {} each", "{} ({})")) if quantity > 1 else "{} for {}"
        said.append(form.format(f"{quantity} {goods}", price))
    listed = " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else said[0]
    source = rng.choice((
        f"On {shown} {customer} ordered {listed}.",
        f"{customer} bought {listed} on {shown}.",
        f"Customer {customer}, {shown}: {listed}.",
        f"Receipt of {shown}. Sold to {customer}: {listed}.",
        f"{customer} would like {listed}. Date: {shown}.",
    ))
    answer = f'{{"customer": "{customer}", "items": [{", ".join(items)}], "date": "{iso}"}}'
    chatty = (
        f"{customer} ordered {listed} on {shown}.",
        f"Thank you for your order, {customer}!",
        f"Here is the order as JSON:\n{answer}",
        f'{{"customer": "{customer}", "date": "{shown}"}}',
        f"The order has {len(items)} item{'s' * (len(items) > 1)}.",
    )
    return _Draft(f"Order: {source}", answer, chatty)


def _event(rng: random.Random, held_out: bool) -> _Draft:
    happening, city = rng.choice(words.HAPPENINGS), words.city(rng, held_out)
    (day, iso_day), (clock, iso_clock) = _date(rng), _time(rng)
    zone, said = rng.choice((("Z", ""), ("Z", ""), ("Z", " UTC"), ("+01:00", " (+01:00)"), ("+02:00", " (+02:00)"),
                             ("-05:00", " (-05:00)"), ("+09:00", " (+09:00)")))
    source = rng.choice((
        f"The {happening} starts on {day} at {clock}{said} in {city}.",
        f"The {happening} in {city} is on {day} at {clock}{said}.",
        f"Join us for the {happening} on {day}, {clock}{said}, in {city}.",
        f"{happening.capitalize()}, {city}, {day}, {clock}{said}.",
        f"Please note: the {happening} was moved to {day}. It begins at {clock}{said}.",
        f"{words.given_name(rng, held_out)} invites you to the {happening}: {day} at {clock}{said}.",
    ))
    chatty = (
        f"The {happening} is on {day} at {clock}.",
        f"{day} at {clock}",
        f"It starts at {clock}{said}.",
        f"{iso_day}",
        f"On {iso_day} at {iso_clock}.",
    )
    return _Draft(f"Event: {source}", f"{iso_day}T{iso_clock}:00{zone}", chatty)


def _plain(name: str) -> str:
    """The name in lower-case ASCII letters, as in an e-mail address."""
    return re.sub(r"[^a-z]", "", name.lower()) or "info"


def _email(rng: random.Random, held_out: bool) -> _Draft:
    given, family = words.given_name(rng, held_out), words.family_name(rng, held_out)
    local = rng.choice((f"{_plain(given)}.{_plain(family)}", f"{_plain(given)}_{_plain(family)}", _plain(family),
                        f"{_plain(given)}{rng.randint(1, 99)}", f"{_plain(given)[:1]}.{_plain(family)}",
                        rng.choice(("info", "office", "sales", "help", "contact"))))
    host = rng.choice(words.MAIL_HOSTS) if rng.random() < 0.5 else _plain(words.city(rng, held_out))
    mail = f"{local}@{host}.{rng.choice(words.MAIL_ENDINGS)}"
    source = rng.choice((
        f"Please write to {given} {family} at {mail} before Friday.",
        f"You can reach {given} {family} at {mail}.",
        f"{given} asked for a copy. Send it to {mail}, please.",
        f"Contact: {given} {family}, {mail}.",
        f"Questions? Mail {mail} and ask for {given}.",
        f"The new address of {given} {family} is {mail}; the old one no longer works.",
    ))
    chatty = (f"The address is {mail}.", f"You can write to {given} at {mail}.", f"{given} {family} <{mail}>",
              f"Sure, it is {mail}", f"mailto:{mail}")
    return _Draft(f"Note: {source}", mail, chatty)


def _ip(rng: random.Random, held_out: bool) -> _Draft:
    address = ".".join(str(rng.randint(0, 255)) for _ in range(4))
    clock, port, user = _time(rng)[1], rng.choice((22, 80, 443, 8080, 5432)), _plain(words.given_name(rng, held_out))
    source = rng.choice((
        f"{clock} connection from {address} port {port} closed.",
        f"{clock} user {user} logged in from {address}.",
        f"Host {address} did not answer on port {port}.",
        f"The server {user} has the address {address}.",
        f"Blocked {address} after {rng.randint(3, 20)} failed logins by {user}.",
        f"{clock} GET /index.html {address} {rng.choice((200, 301, 404, 500))}",
    ))
    chatty = (f"The address is {address}.", f"{address}:{port}", f"It came from {address}.", f"IP address {address}",
              "I see one address in this line.")
    return _Draft(f"Log: {source}", address, chatty)


def _phone(rng: random.Random, held_out: bool) -> _Draft:
    name = words.person(rng, held_out)
    number = (f"+{rng.choice((1, 31, 33, 34, 44, 48, 49, 81))} "
              f"{rng.randint(100, 999)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}")
    source = rng.choice((
        f"Call {name} back on {number} this afternoon.",
        f"{name} can be reached at {number}.",
        f"New number of {name}: {number}.",
        f"If the door is locked, ring {number} and ask for {name}.",
        f"Telephone {number}, {name}, second floor.",
    ))
    chatty = (f"The number is {number}.", f"tel:{number.replace(' ', '')}", f"{name}: {number}",
              f"You can call {name} on {number}.")
    return _Draft(f"Note: {source}", number, chatty)


def _address(rng: random.Random, held_out: bool) -> _Draft:
    name, city = words.person(rng, held_out), words.city(rng, held_out)
    street = f"{rng.choice(words.STREETS)} {rng.choice(words.STREET_KINDS)}"
    number, code = rng.randint(1, 250), f"{rng.randint(10000, 99999)}"
    source = rng.choice((
        f"{name} lives at {number} {street}, {code} {city}.",
        f"Please send the parcel to {name}, {number} {street}, {city} {code}.",
        f"{name} has moved to {city}: {number} {street}, {code}.",
        f"The shop in {city} is at {number} {street} (post code {code}).",
    ))
    record = {"street": street, "number": number, "city": city, "code": code}
    chatty = (f"{number} {street}, {code} {city}", f"The address is {number} {street} in {city}.",
              f"Here you are: {json.dumps(record, ensure_ascii=False)}",
              json.dumps({"city": city, "street": f"{number} {street}"}, ensure_ascii=False))
    return _Draft(f"Note: {source}", json.dumps(record, ensure_ascii=False), chatty)


_PRAISE = ("works very well", "looks lovely", "is a joy to use", "feels solid", "was worth every cent", "is perfect",
           "arrived early and is great", "made my whole family happy", "is the best one I have had")
_BLAME = ("broke after a week", "looks cheap", "is far too small", "was a waste of money", "smells awful",
          "never worked", "fell apart", "arrived late and scratched", "is the worst one I have had")
_SHRUG = ("is what it says on the box", "does its job", "is an ordinary one", "came in a plain box", "is as described",
          "is neither good nor bad")
_MOODS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "positive": (_PRAISE, ("I love it!", "I would buy it again.", "Highly recommended.", "Five stars.", "")),
    "negative": (_BLAME, ("I want my money back.", "Never again.", "Do not buy it.", "One star.", "")),
    "neutral": (_SHRUG, ("Nothing more to say.", "It is fine.", "Three stars.", "")),
}


def _review(rng: random.Random, held_out: bool) -> _Draft:
    thing = words.product(rng, held_out)
    label = rng.choice(("positive", "negative", "neutral", "mixed"))
    if label == "mixed":
        good, bad = rng.choice(_PRAISE), rng.choice(_BLAME)
        first, second = (good, bad) if rng.random() < 0.5 else (bad, good)
        text = rng.choice((f"The {thing} {first}, but the second one {second}.",
                           f"The {thing} {first}. The lid, however, {second}.",
                           f"One {thing} {first}, the other {second}."))
    else:
        opinions, endings = _MOODS[label]
        text = rng.choice((f"The {thing} {rng.choice(opinions)}. {rng.choice(endings)}".strip(),
                           f"Bought {words.article(thing)} {thing} last month. It {rng.choice(opinions)}.",
                           f"My new {thing} {rng.choice(opinions)}. {rng.choice(endings)}".strip()))
    chatty = (f"The review of the {thing} is {label}.", f"I would say {label}.", label.capitalize() + ".",
              "Hard to say.", f"{label}, because of what is said about the {thing}.")
    return _Draft(f"Review: {text}", label, chatty)


def _arithmetic(rng: random.Random, held_out: bool) -> _Draft:
    del held_out  # numbers are not names: there are too few small sums to keep some apart
    kind = rng.choice(("plus", "plus", "minus", "times"))
    a, b = (rng.randint(2, 10), rng.randint(2, 10)) if kind == "times" else (rng.randint(0, 50), rng.randint(0, 50))
    if kind == "minus" and b > a and rng.random() < 0.7:
        a, b = b, a
    result = {"plus": a + b, "minus": a - b, "times": a * b}[kind]
    sign = {"plus": "+", "minus": "-", "times": "*"}[kind]
    asked = rng.choice((f"What is {a} {kind} {b}?", f"What is {a} {sign} {b}?", f"How much is {a} {kind} {b}?",
                        f"{a} {sign} {b} = ?"))
    chatty = (f"{a} {kind} {b} is {result}.", f"The result is {result}.", f"{a} {sign} {b} = {result}",
              f"That makes {result}.")
    return _Draft(f"Question: {asked}", str(result), chatty)


_KNOWN_ANSWERS = (
    ("Is the sky blue?", "yes, because the air scatters blue light."),
    ("Is ice cold?", "yes, because it is frozen water."),
    ("Is fire cold?", "no, because fire gives off heat."),
    ("Is the sun a star?", "yes, because it makes its own light."),
    ("Is the moon a star?", "no, because it only reflects sunlight."),
    ("Can fish breathe under water?", "yes, because they have gills."),
    ("Can a stone swim?", "no, because it is heavier than water."),
    ("Do plants need light?", "yes, because they make food from it."),
    ("Is a week longer than a day?", "yes, because a week has seven days."),
    ("Is a minute longer than an hour?", "no, because an hour has sixty minutes."),
    ("Is snow white?", "yes, because it reflects all light."),
    ("Is grass red?", "no, because grass is green."),
    ("Is water wet?", "yes, because it sticks to what it touches."),
    ("Can a clock tell the time?", "yes, because its hands show the hours."),
    ("Is a whale a fish?", "no, because a whale breathes air."),
    ("Is a spider an insect?", "no, because a spider has eight legs."),
    ("Is honey sweet?", "yes, because it is full of sugar."),
    ("Is a lemon sweet?", "no, because a lemon is sour."),
    ("Does wood float?", "yes, because wood is lighter than water."),
    ("Does iron float?", "no, because iron is heavier than water."),
)
_LEGS = {"two": "duck hen crow goose owl robin swan".split(), "four": "cat dog cow horse sheep goat pig deer".split()}
_COLOURS = "black blue brown green grey orange pink purple red white yellow".split()
_PLACES = "kitchen garden cellar hall attic office garage library school museum".split()


def _question(rng: random.Random, held_out: bool) -> _Draft:
    draw, truth = rng.random(), rng.random() < 0.5
    if draw < 0.35:
        thing, (real, other) = words.product(rng, held_out).split()[-1], rng.sample(_COLOURS, 2)
        asked, reason = f"The {thing} is {real}. Is the {thing} {real if truth else other}?", f"the {thing} is {real}"
    elif draw < 0.65:
        thing, (real, other) = words.product(rng, held_out).split()[-1], rng.sample(_PLACES, 2)
        asked = f"The {thing} is in the {real}. Is the {thing} in the {real if truth else other}?"
        reason = f"the {thing} is in the {real}"
    elif draw < 0.8:
        count = rng.choice(("two", "four"))
        animal, said = rng.choice(_LEGS[count]), count if truth else {"two": "four", "four": "two"}[count]
        asked, reason = f"Does {words.article(animal)} {animal} have {said} legs?", (
            f"{words.article(animal)} {animal} has {count} legs")
    else:
        asked, answer = rng.choice(_KNOWN_ANSWERS)
        truth, reason = answer.startswith("yes"), answer.partition("because ")[2][:-1]
    verdict = "yes" if truth else "no"
    answer = f"{verdict}, because {reason}."
    chatty = (f"{verdict.capitalize()}, {reason}.", f"{verdict}", f"I think so: {reason}." if truth else "I do not think so.",
              f"Well, {reason}.")
    return _Draft(f"Question: {asked}", answer, chatty)


def _call(rng: random.Random, held_out: bool) -> _Draft:
    name, city, (clock, iso) = words.given_name(rng, held_out), words.city(rng, held_out), _time(rng)
    minutes, thing = rng.choice((1, 2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 45, 60, 90)), words.product(rng, held_out)
    happening, temperature = rng.choice(words.HAPPENINGS), rng.randint(15, 28)
    source, answer = rng.choice((
        (f"Set a timer for {minutes} minutes.", f"set_timer(minutes={minutes})"),
        (f"Please start a {minutes} minute timer.", f"set_timer(minutes={minutes})"),
        (f"Wake me at {clock}.", f'set_alarm(time="{iso}")'),
        (f"Set the alarm to {clock}, please.", f'set_alarm(time="{iso}")'),
        (f"What is the weather in {city}?", f'get_weather(city="{city}")'),
        (f"Will it rain in {city} tomorrow?", f'get_weather(city="{city}")'),
        (f"Book a table for {min(minutes, 12)} in {city} at {clock}.",
         f'book_table(city="{city}", people={min(minutes, 12)}, time="{iso}")'),
        (f"Tell {name} about the {happening}.", f'send_message(to="{name}", about="{happening}")'),
        (f"Write {name} a message about the {happening}, please.", f'send_message(to="{name}", about="{happening}")'),
        (f"Heat the room to {temperature} degrees.", f"set_heating(degrees={temperature})"),
        (f"Add {words.article(thing)} {thing} to my list.", f'add_item(name="{thing}")'),
        (f"Put {words.article(thing)} {thing} on the shopping list.", f'add_item(name="{thing}")'),
    ))
    chatty = (f"Sure! {answer}", "I can do that for you.", f"Of course. I will call {answer.partition('(')[0]}.",
              f"{answer.partition('(')[0]}: {answer.partition('(')[2][:-1]}")
    return _Draft(f"Request: {source}", answer, chatty)


def _record(rng: random.Random, held_out: bool) -> _Draft:
    name, city, thing = words.person(rng, held_out), words.city(rng, held_out), words.product(rng, held_out)
    amount, age = rng.randint(2, 40), rng.randint(18, 90)
    if rng.random() < 0.5:
        keys = (("owner", name), ("item", thing), ("place", city))
        source = rng.choice((f"{name} left {words.article(thing)} {thing} on the train to {city}.",
                             f"{words.article(thing).capitalize()} {thing} was found in {city}. It belongs to {name}.",
                             f"In {city} somebody handed in the {thing} of {name}."))
    else:
        keys = (("name", name), ("age", str(age)), ("city", city))
        source = rng.choice((f"{name}, {age}, lives in {city}.", f"{name} is {age} years old and comes from {city}.",
                             f"The guest from {city} is {name}, aged {age}, room {amount}."))
    answer = "\n".join(f"{key}: {value}" for key, value in keys)
    chatty = (f"This is about {name} in {city}.", "; ".join(value for _, value in keys),
              f"Here is the record.\n{answer}", " ".join(f"{key}={value}" for key, value in keys))
    return _Draft(f"Text: {source}", answer, chatty)


def _story(rng: random.Random, held_out: bool) -> _Draft:
    animal, other = rng.sample(words.ANIMALS, 2)
    name, city, thing = words.given_name(rng, held_out), words.city(rng, held_out), words.product(rng, held_out)
    title = rng.choice((f"The {animal} and the {other}", f"{name} and the {animal}", f"The {thing} of {name}",
                        f"A day in {city}"))
    opening = rng.choice((f"Once there was {words.article(animal)} {animal} who lived near {city}.",
                          f"Long ago {name} lived in {city} with {words.article(animal)} {animal}.",
                          f"One morning {name} walked through {city} and met {words.article(animal)} {animal}.",
                          f"Nobody in {city} knew where the {animal} had come from."))
    middle = rng.sample((f"Every day {name} looked for {words.article(thing)} {thing}.",
                         f"It wanted nothing more than {words.article(thing)} {thing}.",
                         f"A {other} came by and asked for help.",
                         f"\"Have you seen my {thing.split()[-1]}?\" asked the {other}.",
                         f"{name} opened the door and laughed.",
                         "It was raining, and the streets were empty.",
                         "The wind was cold and the night was long.",
                         f"The {animal} said nothing and waited."), rng.randint(1, 3))
    ending = rng.choice(("And that was that.", f"In the end the {animal} and the {other} became friends.",
                         f"{name} never forgot that day.", "Then everybody went home and slept.",
                         f"The next day the {thing} was back in its place."))
    text = " ".join((opening, *middle, ending))
    return _Draft(f"Title: {title}", text, (text,))


@dataclass(frozen=True)
class Domain:
    """How one domain is made, asked for and read back.

    Attributes:
      cue: The word before the answer, without its colon.
      pattern: The form of an answer, in Python `re` syntax, for `fullmatch`. Keys of an object are in order.
      weight: Its share of the training text, before normalising.
      draft: Makes source text, answer and chatty continuations from a random generator and the split.
    """

    cue: str
    pattern: str
    weight: float
    draft: Callable[[random.Random, bool], _Draft]


_TEXT = r'[^"\\\n]{1,48}'
_ISO_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_ITEM = rf'\{{"product": "{_TEXT}", "quantity": \d{{1,2}}, "price": \d{{1,3}}\.\d{{2}}\}}'

DOMAINS: dict[str, Domain] = {
    "biography": Domain(
        "JSON", rf'\{{"name": "{_TEXT}", "born": \d{{4}}, "city": "{_TEXT}", "occupation": "{_TEXT}"\}}', 3, _biography),
    "order": Domain(
        "JSON", rf'\{{"customer": "{_TEXT}", "items": \[{_ITEM}(, {_ITEM}){{0,2}}\], "date": "{_ISO_DATE}"\}}', 3, _order),
    "event": Domain("When", rf"{_ISO_DATE}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(Z|[+-]\d\d:\d\d)", 2, _event),
    "email": Domain("E-mail", r"[a-z0-9._]{1,40}@[a-z0-9.]{1,40}\.[a-z]{2,6}", 1, _email),
    "ip": Domain("IP", rf"{_BYTE}(\.{_BYTE}){{3}}", 1, _ip),
    "phone": Domain("Phone", r"\+\d{1,3} \d{3} \d{3} \d{4}", 1, _phone),
    "address": Domain(
        "Address", rf'\{{"street": "{_TEXT}", "number": \d{{1,3}}, "city": "{_TEXT}", "code": "\d{{5}}"\}}', 1.5, _address),
    "review": Domain("Sentiment", r"positive|negative|neutral|mixed", 1, _review),
    "arithmetic": Domain("Answer", r"-?\d{1,3}", 1.5, _arithmetic),
    "question": Domain("Answer", r"(yes|no), because [a-z ]{3,60}\.", 1.5, _question),
    "call": Domain("Call", r'[a-z_]{3,20}\(([a-z]+=("[^"\\\n]{1,48}"|\d{1,3})(, )?){1,3}\)', 1.5, _call),
    "record": Domain("Record", r"[a-z]{2,12}: [^\n]{1,48}(\n[a-z]{2,12}: [^\n]{1,48}){2}", 1.5, _record),
    "story": Domain("Story", r"[^\n]{20,600}", 1, _story),
}

EXAMPLE_PROMPTS: dict[str, str] = {
    "biography": "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: ",
    "order": "Order: On 5 March 2024 Boris Kaplan ordered 2 steel kettles at 24.50 each and 1 red lamp for 18.99.\nJSON: ",
    "event": "Event: The chess match starts on 14 March 2025 at 9:30 am in Porto.\nWhen: ",
    "email": "Note: You can reach Nora Dahl at nora.dahl@example.org.\nE-mail: ",
    "ip": "Log: 14:05 user nora logged in from 192.168.20.7.\nIP: ",
    "phone": "Note: Call Felix Berg back on +44 207 946 0958 this afternoon.\nPhone: ",
    "address": "Note: Mina Okafor lives at 12 Harbour Street, 20457 Hamburg.\nAddress: ",
    "review": "Review: The glass teapot is a joy to use. I would buy it again.\nSentiment: ",
    "arithmetic": "Question: What is 12 plus 7?\nAnswer: ",
    "question": "Question: Is the sky blue?\nAnswer: ",
    "call": "Request: Set a timer for 10 minutes.\nCall: ",
    "record": "Text: Clara Novak left a green umbrella on the train to Vienna.\nRecord: ",
    "story": "Title: The fox and the owl\nStory: ",
}
"""One prompt per domain in the canonical form, for demonstrations."""


def make_example(rng: random.Random, domain: str, *, held_out: bool = False, chatty_share: float = CHATTY_SHARE) -> Example:
    """One example of a domain.

    Args:
      rng: Source of all randomness.
      domain: A key of `DOMAINS`.
      held_out: Take names of the held-out split, and the canonical cue ending (one space).
      chatty_share: Probability that `output` is not the answer but a chatty continuation.

    Returns:
      The example.
    """
    kind = DOMAINS[domain]
    draft = kind.draft(rng, held_out)
    ending = " " if held_out else rng.choices([end for end, _ in _CUE_ENDINGS], [share for _, share in _CUE_ENDINGS])[0]
    output = rng.choice(draft.chatty) if rng.random() < chatty_share else draft.answer
    prompt = f"{draft.source}\n{kind.cue}:{ending}"
    if domain == "question" and not held_out and rng.random() < _BARE_SHARE:
        prompt = draft.source.removeprefix("Question: ") + " "
    return Example(domain, prompt, draft.answer, output)


def generate(
    seed: int, *, held_out: bool = False, domain: str | None = None, chatty_share: float = CHATTY_SHARE
) -> Iterator[Example]:
    """An endless stream of examples; the same arguments give the same stream.

    Args:
      seed: Seed of the stream.
      held_out: Use only names that training never sees; otherwise only the others.
      domain: Only this domain; by default all, drawn by `Domain.weight`.
      chatty_share: Probability of a chatty output; 0 for reference answers only.

    Yields:
      Examples.

    Raises:
      KeyError: The domain is unknown.
    """
    rng = random.Random(f"{seed}/{held_out}/{domain}")
    names = [domain] if domain is not None else list(DOMAINS)
    weights = [DOMAINS[name].weight for name in names]
    while True:
        yield make_example(rng, rng.choices(names, weights)[0], held_out=held_out, chatty_share=chatty_share)


def parse_fields(domain: str, text: str) -> dict[str, str] | None:
    """The fields of an answer, to compare an output with the reference one field at a time.

    Args:
      domain: A key of `DOMAINS`.
      text: An answer, or what a model wrote instead.

    Returns:
      Field name to value, or None where the text is not in the domain's form.
    """
    if re.fullmatch(DOMAINS[domain].pattern, text) is None:
        return None
    if domain in ("biography", "address"):
        return {key: str(value) for key, value in json.loads(text).items()}
    if domain == "order":
        order = json.loads(text)
        return {key: json.dumps(order[key]) for key in ("customer", "items", "date")}
    if domain == "record":
        return dict(line.split(": ", 1) for line in text.split("\n"))
    if domain == "question":
        verdict, _, reason = text.partition(", ")
        return {"verdict": verdict, "reason": reason}
    return {"value": text}


@dataclass(frozen=True)
class ConformanceTask:
    """One line of the report on outputs that conform, without and with a constraint.

    Attributes:
      name: The domain.
      pattern: What an output must match in full, in Python `re` syntax.
    """

    name: str
    pattern: str

    def examples(self, count: int, seed: int = 0) -> list[Example]:
        """Held-out prompts with their reference answers.

        Args:
          count: Number of examples.
          seed: Seed; different seeds give different prompts.

        Returns:
          `count` examples whose names do not occur in the training text.
        """
        stream = generate(seed, held_out=True, domain=self.name, chatty_share=0.0)
        return [next(stream) for _ in range(count)]

    def prompts(self, count: int, seed: int = 0) -> list[str]:
        """The prompts of `examples(count, seed)`."""
        return [example.prompt for example in self.examples(count, seed)]


CONFORMANCE_TASKS: tuple[ConformanceTask, ...] = tuple(
    ConformanceTask(name, domain.pattern) for name, domain in DOMAINS.items() if name != "story"
)
"""The domains with a form to check; `story` is free text."""
