"""The languages of texts: which one it is, by its commonest words, their stems, and what a query can do without.

A word has the same stem in a text and in a query, whatever language it is of, so a wrong guess costs only that other
forms of a word are not found. Stems are those of Snowball (snowballstem.org). All words here are folded.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

import Stemmer

from bbfs.resources.search.words.folding import folded

DEFAULT = "english"
"""The language of a text in Latin letters without a word of the lists."""
SHORTEST = 3
"""Letters of the shortest word that has a stem."""
_OF_SCRIPT = (
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
)
"""The stemmers of words in other scripts than Latin, which need no guess."""
_LATIN = 0x0250
STOP_WORDS = {
    "english": """a about above after again against all also am an and any are as at be because been before being
        below between both but by can cannot could did do does doing down during each either etc few for
        from further given had has have having he her here hers herself him himself his how however i if in
        into is it its itself let may me might more most must my myself no nor not of off on once only or
        other ought our ours ourselves out over own same shall she should so some such than that the their
        theirs them themselves then there these they this those through to too under until up upon us very
        was we were what when where whether which while who whom why will with would yet you your yours
        yourself yourselves""",
    "german": """aber als am an auch auf aus bei bin bis da damit dann das dass dem den der des die dies diese dieser
        doch durch ein eine einem einen einer eines er es fur hat ich ihr im in ist ja kann mit nach nicht
        noch nur oder sein sich sie sind so uber um und uns vom von vor war was wenn wer wie wir wird zu zum
        zur""",
    "french": """a au aux avec ce ces cette comme dans de des du elle en est et etre ete il ils je la le les leur lui
        mais meme ne nous on ont ou par pas plus pour qu que qui sa se ses si son sont sur un une vous""",
    "spanish": """a al como con cual de del desde donde el ella en entre era es esta este esto fue ha hay la las le lo
        los mas me mi muy no o para pero por que se si sin sobre son su sus tambien un una y ya""",
    "italian": """a ad al alla anche che chi ci come con cosi da dal dalla dei del della delle di dove e ed era gli ha
        i il in io la le lo ma nel nella non o per piu quale quando questa questo se si sono su sul sulla
        tra un una uno""",
    "portuguese": """a ao aos as com como da das de do dos e ela ele em entre era essa esse esta este eu foi ha isso ja
        mais mas me muito na nao nas no nos o os ou para pela pelo por qual quando que se sem seu sua sao
        tambem um uma""",
    "dutch": """aan al als bij dan dat de deze die dit door een en er gaat geen had heeft het hij hoe hun ik in is
        je kan maar meer met naar niet nog of om onder ook op over te tot uit van voor waar was wat we wel
        werd wie wij worden wordt zich zijn zo""",
    "swedish": """alla att av blev bli da de dem den denna det detta din du eller en ett fran for ha han har hon hur i
        icke inte jag kan man med men mig nar nagon och om oss pa sa sig sin ska som till under upp ut var
        vad vi vid ar""",
    "norwegian": """alle at av bare ble bli da de deg den det dette du eller en er et etter for fra ha han har hun hva
        hvor i ikke jeg kan man med meg men mot na nar og om opp oss over pa seg sin skal som til ut var ved
        vi vil""",
    "danish": """af alle at blev blive da de den der deres det dette dig du eller en end er et fra for ham han har
        hun hvad hvor i ikke jeg kan man med meget men mig nar nogle og om op os over pa sig sin skal som
        til ud var ved vi vil""",
    "finnish": """ei ero ette etta han hanen he ja jo joka jos jotka kanssa kuin kun me mika mikali mina minun mukaan
        mutta myos ne niin nyt oli olla olen on ovat se sen sita sina siita tai taman tama vain voi voidaan""",
    "hungarian": """a az azt be csak de e egy el es ez ezt hogy ha ill is itt ki le lesz maga mar meg mely mi mint mit
        nem o ott pedig s sem szerint ugy vagy van volt""",
    "romanian": """a acest aceasta ai al ale am ar are as au ca care ce cu da de din dupa ea ei el este eu fi fie fost
        in la le lui mai nu o pe pentru prin sa sau se si sunt un una unei unui""",
    "turkish": """ama ancak bir biz bu cok da daha de en gibi hem her icin ile ise kadar ki ne o olan olarak oldu olur
        sonra su ve veya ya""",
    "polish": """a ale ani bo by byc byl czy dla do gdy gdzie i ich ja jak jako jest jego jej juz ktora ktore ktory
        lub ma mi na nad nie niz o od oraz po pod przez przy sa sie tak tam te tego tej to tu w we z za ze""",
    "russian": """а без бы был была были было быть в вам вас во вот вы где да для до его ее если есть еще же за и из
        или им их к как ко кто ли мы на не него нее нет ни них но о об он она они оно от по под при с со так
        там то только ты у уже чем что это этого этот я""",
    "greek": """αλλα αν απο αυτα αυτη αυτο για δεν ειναι εν ενα ενας η ηταν θα και κατα με μια μας να ο οι οπως οτι
        που σε στη στην στο στον τα τη την της τι τις το τον του τους των ως""",
    "arabic": """الي ان او اي في قد كان كانت كل كما لا لم لن له ما مع من هذا هذه هل هو هي و ثم حتي ذلك علي عن عند
        غير""",
    "hindi": """और इस उस एक एवं कर करने का कि किया की के को गया जो तक तो था थी थे द्वारा ने पर भी में यह या ये वह से
        है हैं हो""",
}
"""The commonest words of languages: they tell the language of a text, and a query needs no hit of them."""
ASKING = {
    "english": """anybody anyone anything article articles concern concerned concerning concerns deal dealing deals
        describe described describes describing description discuss discussed discusses discussing discussion
        discussions document documents done find give given gives giving interest interested investigated like look
        looking made make makes making paper papers possible regarding relate related relates relating relevant
        someone something use used uses using work works"""
}
"""Words by which a long question asks, whatever it asks for: `find all papers that discuss …`."""
_ASKING = {language: frozenset(words.split()) for language, words in ASKING.items()}
_STOP_WORDS = {language: frozenset(words.split()) for language, words in STOP_WORDS.items()}
_LANGUAGES = {
    word: [language for language, words in _STOP_WORDS.items() if word in words]
    for word in frozenset[str]().union(*_STOP_WORDS.values())
}
"""The languages of which a word is one of the commonest."""


def language_of(words: Iterable[str], among: Collection[str] = tuple(_STOP_WORDS), default: str = DEFAULT) -> str:
    """Return the language of the words of a text, of some languages: the one with the most of its commonest words."""
    found = Counter(language for word in _LANGUAGES.keys() & {*words} for language in _LANGUAGES[word])
    best = max(
        (language for language in _STOP_WORDS if language in among), key=lambda each: found[each], default=default
    )
    return default if found[best] == found[default] else best


def stop_words(language: str) -> frozenset[str]:
    """Return the words of a language that a query can do without."""
    return _STOP_WORDS.get(language, frozenset())


def asking_words(language: str) -> frozenset[str]:
    """Return the words of a language that a long question can do without."""
    return _ASKING.get(language, frozenset())


def stem(word: str, language: str) -> str:
    """Return the stem of a word. language: of the text, for words in Latin letters."""
    if len(word) < SHORTEST or not word.isalpha():
        return word
    code = ord(word[0])
    if code < _LATIN:
        return _stemmed(word, language)
    return next((_stemmed(word, name) for first, last, name in _OF_SCRIPT if first <= code <= last), word)


def stems(word: str, languages: Iterable[str]) -> list[str]:
    """Return the stems that texts of some languages have of a word, each once."""
    return [*dict.fromkeys(stem(word, language) for language in languages)]


def _stemmed(word: str, language: str) -> str:
    return stemmer(language)(word)


@lru_cache(maxsize=64)
def stemmer(language: str) -> Callable[[str], str]:
    """Return what makes the stem of a word of `SHORTEST` letters or more in the script of a language."""
    snowball: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord

    def stemmed(word: str) -> str:
        found = snowball(word)
        return found if found.isascii() else folded(found).casefold().replace("ة", "ه")

    return stemmed


def rules() -> str:
    """Return the version of the stems."""
    return f"Snowball {Stemmer.version()}"
