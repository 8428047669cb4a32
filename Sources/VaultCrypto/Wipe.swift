internal import COpenSSL

/// Overwrites memory with zeros in a way that the compiler keeps (OPENSSL_cleanse).
func wipe(_ base: UnsafeMutableRawPointer, count: Int) {
    OPENSSL_cleanse(base, count)
}
