"""What is encoded: everyday sentences, long and short, one of German, of Spanish and of code."""

SENTENCES = [
    "How long does bread keep in the freezer?",
    "You can freeze a loaf for about three months.",
    "The ferry was late because of the fog.",
    "Which trains go to Lisbon on a Sunday morning?",
    "She poured the tea and waited for the rain to stop.",
    "Interest rates rose by a quarter of a point in March.",
    "The old library keeps its maps in the cellar.",
    "A checkpoint written yesterday should load in ten years.",
    "Knead the dough for ten minutes, then let it rest under a cloth.",
    "Penguins huddle to share warmth through the polar night.",
    "My password no longer works; how do I set a new one?",
    "The judge adjourned the hearing until further notice.",
    "Two plus two is four, whoever does the sum.",
    "Volcanic soil makes for good vineyards.",
    "The goalkeeper saved three penalties and was carried off the pitch.",
    "Water boils at a lower temperature in the mountains.",
    "Das Museum ist montags geschlossen.",
    "¿Dónde está la estación de tren más cercana?",
    "def add(a, b): return a + b",
    "No.",
]
