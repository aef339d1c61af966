"""What is known of the stored data sets before any file is opened: size, balance, origin, checksums.

The twenty binary sets are in the pre-processed form of Fernández-Delgado et al., "Do we need hundreds of
classifiers to solve real world classification problems?" (JMLR 15, 2014): categories mapped to numbers, missing
values set to 0 before scaling, constant columns dropped, every feature standardised over the whole file to mean 0
and standard deviation 1 (with n-1), printed with 6 significant digits. The smaller class code is -1, the larger +1.

``digest`` identifies the *values* (see :func:`content_digest`), whatever file they come in, so that the embedded
copy, a downloaded one and one from a directory are all held to the same standard.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARCHIVE = (
    "https://raw.githubusercontent.com/CameronDiao/GLVQ-For-Classification-In-Randomized-NN-And-HDC/"
    "dec0fe3169b95a7dc8e224cf1aabcb6be914fc96/data"
)
"""A public copy of the benchmark's tree, at a fixed commit."""

MNIST_ARCHIVE = "https://ossci-datasets.s3.amazonaws.com/mnist"


def content_digest(X: NDArray[Any], y: NDArray[Any]) -> str:
    """SHA-256 of shape, features (little-endian float64, row by row) and labels (int8)."""
    digest = hashlib.sha256(f"{X.shape[0]}x{X.shape[1]};".encode())
    digest.update(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(y, dtype="i1").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class UciSet:
    """One of the twenty binary sets: its size, and how to recognise it and its source file."""

    name: str
    samples: int
    features: int
    negatives: int
    digest: str
    source: str
    source_sha256: str
    about: str
    embedded: bool = True

    @property
    def positives(self) -> int:
        return self.samples - self.negatives

    @property
    def url(self) -> str:
        return f"{ARCHIVE}/{self.name}/{self.source}"


@dataclass(frozen=True)
class MnistFile:
    """One of the four idx files: the archive's gzip by MD5, the bytes inside by SHA-256."""

    name: str
    gzip_md5: str
    raw_sha256: str

    @property
    def url(self) -> str:
        return f"{MNIST_ARCHIVE}/{self.name}"


MNIST_FILES = (
    MnistFile(
        "train-images-idx3-ubyte.gz",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    MnistFile(
        "train-labels-idx1-ubyte.gz",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    MnistFile(
        "t10k-images-idx3-ubyte.gz",
        "9fb629c4189551a2d022fa330f9573f3",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    MnistFile(
        "t10k-labels-idx1-ubyte.gz",
        "ec29112dd5afa0611ce80d1b7f02629c",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

_SETS = (
    UciSet(
        "blood",
        samples=748,
        features=4,
        negatives=570,
        digest="92a4712e7e67c48097b01958ae117fe19af5c4b428ba186b93569821d7c035d0",
        source="blood_R.dat",
        source_sha256="8ec0e282e68c246050298ff8aa48a507f236ab8e01ed98fba704bff8a44b049f",
        about="who gave blood again (UCI transfusion)",
    ),
    UciSet(
        "breast-cancer",
        samples=286,
        features=9,
        negatives=201,
        digest="5e3b1433cda4b9c21ab919271f61b6550aaefe760d36ec8cb877b5b0126265f5",
        source="breast-cancer_R.dat",
        source_sha256="b66f0ff064502ba899ec6c77733f3af72884521aba134ec9b3453f144255fe1a",
        about="recurrence after surgery (UCI, Ljubljana)",
    ),
    UciSet(
        "chess-krvkp",
        samples=3196,
        features=36,
        negatives=1527,
        digest="dea162c44d8f0439b3f7a885338920b9d477b31579405316dbc43dd9ba125a96",
        source="chess-krvkp_R.dat",
        source_sha256="b63367b9010925bb1c12170fbd88d659a2ee1163a0b65004eed739a527dddbe9",
        about="king and rook against king and pawn: can white win (UCI kr-vs-kp)",
    ),
    UciSet(
        "congressional-voting",
        samples=435,
        features=16,
        negatives=267,
        digest="3d463e7c4248431133576295d7c69f72596bbab50401b0fed1a0959877bfea79",
        source="congressional-voting_R.dat",
        source_sha256="33ef50dff605d088f99f2d0e245463587f2dbec6db45226df21039c3d43d00f6",
        about="party by votes of 1984 (UCI); yes and no share a code, so only absences are left",
    ),
    UciSet(
        "conn-bench-sonar-mines-rocks",
        samples=208,
        features=60,
        negatives=111,
        digest="905999b595d57ae416d6c250248c391a9040e87f5ef8a7ae5781b1446ff89e8c",
        source="conn-bench-sonar-mines-rocks_R.dat",
        source_sha256="b19ae3f6b79a741e5d69bf4631f2d5d07bba4a914023bab0988684bacf16800e",
        about="sonar echoes of mines and rocks (UCI)",
    ),
    UciSet(
        "credit-approval",
        samples=690,
        features=15,
        negatives=307,
        digest="b0490f200369bc45b69c41baa8a0476cd8e2b1bd5e77be3d66460ed3d7e85895",
        source="credit-approval_R.dat",
        source_sha256="3acc673a89efcc946ce4d22b4191b649400c80e87e9b478dbd5b4d82dbb69ab1",
        about="credit card applications (UCI crx)",
    ),
    UciSet(
        "cylinder-bands",
        samples=512,
        features=35,
        negatives=200,
        digest="567027e094cf72ff43479eb68822f1be0dbb0e2ed108abcb406ef418676472e8",
        source="cylinder-bands_R.dat",
        source_sha256="35679bc4ad1c168a00e3ab44ae2826b1cc322a9415135b925a3cb0fb2b0d71de",
        about="banding in rotogravure printing (UCI bands)",
        embedded=False,
    ),
    UciSet(
        "hill-valley",
        samples=606,
        features=100,
        negatives=307,
        digest="fb9e1ef4b5aaacd30049f32e51ac67edf64ea44e4a9c412e5ac3897c2fd7bd72",
        source="hill-valley_train_R.dat",
        source_sha256="6c66f37f82e2de3f8788e153fbbba893849a06c17a3d127f05769b53225baebe",
        about="a bump up or down in a noisy line (UCI, training file)",
        embedded=False,
    ),
    UciSet(
        "horse-colic",
        samples=300,
        features=25,
        negatives=191,
        digest="8ba7e7e5a2dce33137bf90f8f1c0600045b7a06beb81d7ce83cd907dbd0b902b",
        source="horse-colic_train_R.dat",
        source_sha256="bdd4dbc6b5306b55283b3805f2c6ba1a328c4766e99ecd1d4d53c4c6b3035d96",
        about="was the lesion surgical (UCI, training file)",
    ),
    UciSet(
        "ilpd-indian-liver",
        samples=583,
        features=9,
        negatives=416,
        digest="56d07b3c52acfe1f8ebb6e0d42b913fc8a993ee3f59a995cc2f7ee3fd00c7611",
        source="ilpd-indian-liver_R.dat",
        source_sha256="ad68168b37e5e7998146f292471461b03835462cc6c82d3f02fc3488216fa3f8",
        about="liver patients (UCI ILPD), without gender",
    ),
    UciSet(
        "ionosphere",
        samples=351,
        features=33,
        negatives=126,
        digest="79e149940191ca3f710ef2e0deee13025e92e4796158df664088aca7ab7226fb",
        source="ionosphere_R.dat",
        source_sha256="831a37f79fbf84cfe40632145280ac905523a4f7d7d2624baaa7d7b571c67815",
        about="radar returns (UCI)",
    ),
    UciSet(
        "magic",
        samples=19020,
        features=10,
        negatives=12332,
        digest="d68e7ae8580a4f28efee49945360877f477ffa86a5fe50637c6284336a05a034",
        source="magic_R.dat",
        source_sha256="814c74a896b7c95a3191daaab2bd09953c95597bc659cfb86208afc78031f2fb",
        about="gamma rays against hadrons in a Cherenkov telescope (UCI magic04)",
    ),
    UciSet(
        "mammographic",
        samples=961,
        features=5,
        negatives=516,
        digest="44e338c64f3ca5f17919945cb1b9b2a20491dafdd820c07d521fc3bcde8edf99",
        source="mammographic_R.dat",
        source_sha256="a75af0c3eeeba0b3ebf5ec423cee56ff26ba07ace8b2e0ab390d2491e4d73555",
        about="benign and malignant masses (UCI)",
    ),
    UciSet(
        "musk-1",
        samples=476,
        features=166,
        negatives=269,
        digest="2570f7756f027e8e9ae620ed0735d1d94c54a44fc9a7d8c3fb6ccf95e7da6e96",
        source="musk-1_R.dat",
        source_sha256="88816fddce4fd3f753538727cd1ba812359a044e25b4422c89997af50940e54b",
        about="molecules that smell of musk (UCI clean1)",
    ),
    UciSet(
        "ozone",
        samples=2536,
        features=72,
        negatives=2463,
        digest="c3ce8cf72e28b8e1ea4502dbb5a477bc8f4265ed23dc26636c9c6275e2bad9f9",
        source="ozone_R.dat",
        source_sha256="0deee2b4fa9a610666f668c21c2ea260df158c06f279a4d743ea330e1d43ae98",
        about="ozone days, one-hour peak (UCI onehr)",
        embedded=False,
    ),
    UciSet(
        "pima",
        samples=768,
        features=8,
        negatives=500,
        digest="d3314a82d7d4ab171728409a6060280bbe8d353af7db9cab9e0ba6308e99a817",
        source="pima_R.dat",
        source_sha256="949a1906bbb6b4e8d07fd034bc59ba53164628d6516aba9f2ce6eb8959da8208",
        about="onset of diabetes (Pima Indians)",
    ),
    UciSet(
        "tic-tac-toe",
        samples=958,
        features=9,
        negatives=332,
        digest="479801922fbf704e74a01ec59a7a2479f6ffcb73ff86963d5e55acff0493b5f7",
        source="tic-tac-toe_R.dat",
        source_sha256="214a569f940db1ad9e8b86ebe5e5b32ba4599ea54d3dea8c3e598f1c3dc269af",
        about="has x won (UCI; enumerated)",
    ),
    UciSet(
        "titanic",
        samples=2201,
        features=3,
        negatives=1490,
        digest="c2e1821f3ff2d9c71eff5e9cfe17b410b6653a0952e1bca3ef09bf9c5dc4d1e0",
        source="titanic_R.dat",
        source_sha256="e36ade82f57ebb8be44999193e0ed2e2f6f4256cf6aec5a6feeaf9deb513745f",
        about="survivors by class, age and sex (DELVE; from cell counts)",
    ),
    UciSet(
        "ringnorm",
        samples=7400,
        features=20,
        negatives=3664,
        digest="2442edb49abd3a224b18c2524a903b5bc36037371f3e07c9edb529e0e84f40c7",
        source="ringnorm_R.dat",
        source_sha256="1a48618fc442762c85fabe090f5b36c721aef5fb13dae07bb6b16466f664e88b",
        about="two overlapping normal clouds (DELVE)",
        embedded=False,
    ),
    UciSet(
        "spambase",
        samples=4601,
        features=57,
        negatives=2788,
        digest="92abe1422bd75b98538bf0b7082328be9bd13de66deed67b445c7c23cff2b191",
        source="spambase_R.dat",
        source_sha256="f0a4ea19abd02cbfccb07621ba5cc2b199fd20f5d1b7db808f614afd489baaab",
        about="spam by word frequencies (UCI)",
    ),
)

UCI: dict[str, UciSet] = {entry.name: entry for entry in _SETS}
"""The twenty sets of the paper, by name, in its order."""
