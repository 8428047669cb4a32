/// Guesses at the word that a person meant, unless it differs so much that the guess would mislead. Pure.
enum NearWord {
    /// The most letters in which the words may differ.
    private static let maximumDistance = 2

    /// Returns the nearest of the known words, or nil if all are far.
    static func guess(for word: String, among known: [String]) -> String? {
        let distances = known.map { ($0, distance(word, $0)) }
        return distances.filter { isNear(word, $0, $1) }.min { $0.1 < $1.1 }?.0
    }

    /// Returns true if the words differ in at most two letters, and in less than half of them.
    static func isNear(_ word: String, _ known: String) -> Bool { isNear(word, known, distance(word, known)) }

    private static func isNear(_ word: String, _ known: String, _ distance: Int) -> Bool {
        distance <= maximumDistance && distance * 2 < max(letters(word).count, letters(known).count)
    }

    /// Removes a far guess from ArgumentParser's message: "unknown option '--x'. Did you mean '--y'?"
    static func withoutFarGuess(_ message: String) -> String {
        guard let found = message.firstMatch(of: /([Uu]nknown option '(.*?)')\. Did you mean '(.*?)'\?/) else {
            return message
        }
        let (_, start, given, meant) = found.output
        let rest = isNear(String(given), String(meant)) ? "\(start); did you mean '\(meant)'?" : "\(start)"
        return message[..<found.range.lowerBound] + rest + message[found.range.upperBound...]
    }

    /// Returns the number of letters to insert, remove, replace or swap with a neighbour (optimal string alignment).
    private static func distance(_ first: String, _ second: String) -> Int {
        let (first, second) = (letters(first), letters(second))
        var rows = [Array(0...second.count)]
        for (i, letter) in first.enumerated() {
            var row = [i + 1]
            for (j, other) in second.enumerated() {
                let replaced = rows[i][j] + (letter == other ? 0 : 1)
                var best = min(replaced, rows[i][j + 1] + 1, row[j] + 1)
                if i > 0, j > 0, letter == second[j - 1], first[i - 1] == other {
                    best = min(best, rows[i - 1][j - 1] + 1)
                }
                row.append(best)
            }
            rows.append(row)
        }
        return rows[first.count][second.count]
    }

    /// Returns the word without the hyphens of an option.
    private static func letters(_ word: String) -> [Character] { Array(word.drop { $0 == "-" }) }
}
