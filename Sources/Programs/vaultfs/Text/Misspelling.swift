/// Compares a word with a known one. Only letters count, in either case. Pure.
enum Misspelling {
    /// The number of common first letters in another form of the word, such as `passphrase` for `passfile`.
    private static let stem = 4

    /// Returns true if one letter is wrong, missing or too many, or two are swapped.
    static func isLikely(_ word: String, of known: String) -> Bool {
        let (word, known) = (letters(word), letters(known))
        if word == known { return true }
        guard min(word.count, known.count) > 2 else { return false }
        let start = zip(word, known).prefix { $0 == $1 }.count
        let (rest, knownRest) = (word[start...], known[start...])
        return rest.dropFirst() == knownRest.dropFirst() || rest.dropFirst() == knownRest
            || rest == knownRest.dropFirst()
            || (rest.prefix(2).reversed() == Array(knownRest.prefix(2)) && rest.dropFirst(2) == knownRest.dropFirst(2))
    }

    /// Returns true for another form of the word, or its beginning.
    static func isShort(_ word: String, for known: String) -> Bool {
        let (word, known) = (letters(word), letters(known))
        return known.count >= stem && word.starts(with: known.prefix(stem))
            || word.count >= 3 && known.starts(with: word)
    }

    private static func letters(_ word: String) -> [Character] { word.lowercased().filter(\.isLetter) }
}
