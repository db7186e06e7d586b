// Package store keeps results in SQLite or PostgreSQL so that they can be found again: one row a
// run, with the columns that one filters by beside the whole result.
//
// The store is a cache of bundles: everything in it can be put again from them. A second put of
// the same run replaces the first, so derivations by newer definitions take the place of older
// ones and no sweep is counted twice.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"               // the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

// schemaVersion is the version of the tables; Open migrates older ones.
const schemaVersion = 1

const schema = `
CREATE TABLE IF NOT EXISTS results (
	id          TEXT PRIMARY KEY,
	point_id    TEXT NOT NULL,
	sweep       TEXT NOT NULL,
	bundle      TEXT NOT NULL,
	config      TEXT NOT NULL,
	model       TEXT NOT NULL,
	scenario    TEXT NOT NULL,
	corpus      TEXT NOT NULL,
	hardware    TEXT NOT NULL,
	engine      TEXT NOT NULL,
	prec        TEXT NOT NULL,
	topology    TEXT NOT NULL,
	offload     TEXT NOT NULL,
	conc        BIGINT NOT NULL,
	valid       BIGINT NOT NULL,
	simulated   BIGINT NOT NULL,
	measured_at TEXT NOT NULL,
	put_at      TEXT NOT NULL,
	definitions TEXT NOT NULL,
	body        TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS results_model ON results (model, scenario, conc);
CREATE INDEX IF NOT EXISTS results_sweep ON results (sweep);
`

// A Store is an open database. It is safe for concurrent use, also by several processes.
type Store struct {
	db       *sql.DB
	path     string // without a password
	postgres bool
}

// IsPostgres tells whether a store's name is the address of a PostgreSQL database.
func IsPostgres(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://")
}

// Open opens a store and makes its tables when they are absent: a SQLite file, which is made
// too, or a PostgreSQL database named as postgres://user@host/database.
func Open(name string) (*Store, error) {
	s := &Store{path: name, postgres: IsPostgres(name)}
	var err error
	if s.postgres {
		if s.path, err = redact(name); err != nil {
			return nil, err
		}
		s.db, err = sql.Open("pgx", name)
	} else {
		if dir := filepath.Dir(name); dir != "." {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return nil, err
			}
		}
		s.db, err = sql.Open("sqlite", "file:"+escapePath(name)+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openDeadline)
	defer cancel()
	if err := s.migrate(ctx); err != nil {
		s.db.Close()
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return s, nil
}

// openDeadline bounds the wait for a database that does not answer.
const openDeadline = 30 * time.Second

// Damaged says whether an error is that of a file which is no database or a broken one, so that only
// making it again helps. A disk that is full or fails, a lock and a newer schema are others.
func Damaged(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff { // the rest says where it happened
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return false
}

// redact is the address of a database without its password.
func redact(name string) (string, error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", errors.New("the address of the database is not a URL of the form postgres://user@host/database")
	}
	return u.Redacted(), nil
}

// OpenExisting is Open that fails when a SQLite file is not there yet.
func OpenExisting(name string) (*Store, error) {
	if IsPostgres(name) {
		return Open(name)
	}
	if fi, err := os.Stat(name); err != nil {
		return nil, err
	} else if fi.IsDir() {
		return nil, fmt.Errorf("%s is a folder; the store is a file, such as %s", name, filepath.Join(name, "weir.db"))
	}
	return Open(name)
}

// escapePath keeps characters that mean something in a URI.
func escapePath(p string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(p)
}

// migrate brings the tables to schemaVersion.
func (s *Store) migrate(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	v, err := s.version(ctx, tx)
	if err != nil {
		return err
	}
	if v > schemaVersion {
		return fmt.Errorf("the store has schema %d, this program knows %d: use a newer weir", v, schemaVersion)
	}
	if v == schemaVersion {
		return nil
	}
	for _, stmt := range strings.Split(schema, ";\n") {
		if strings.TrimSpace(stmt) == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	set := fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)
	if s.postgres {
		set = fmt.Sprintf("INSERT INTO weir_schema (version) VALUES (%d)", schemaVersion)
	}
	if _, err := tx.ExecContext(ctx, set); err != nil {
		return err
	}
	return tx.Commit()
}

// version is the schema of the database, 0 for an empty one. In PostgreSQL it holds off others
// that migrate at the same time until the transaction ends.
func (s *Store) version(ctx context.Context, tx *sql.Tx) (v int, err error) {
	if !s.postgres {
		return v, tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	}
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(20010)"); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS weir_schema (version BIGINT NOT NULL)"); err != nil {
		return 0, err
	}
	return v, tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM weir_schema").Scan(&v)
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Path is the file or the address of the database.
func (s *Store) Path() string { return s.path }

// An Entry is one run in the store.
type Entry struct {
	Result *result.Result `json:"result"`
	Sweep  string         `json:"sweep"` // the sweep that it was part of, "" for none
	// Bundle is the folder of its bundle, "" when unknown. A folder beside or below a SQLite file
	// is kept relative to it, so that both can be moved together; Query gives a path that opens.
	Bundle string `json:"bundle"`
	PutAt  string `json:"put_at"` // RFC 3339
}

// Put adds results, or replaces runs that are there already, all or none of them.
func (s *Store) Put(ctx context.Context, entries ...Entry) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, e := range entries {
		e.Bundle = s.keepPath(e.Bundle)
		if err := put(ctx, tx, e); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return nil
}

// keepPath is a bundle's folder as it is stored.
func (s *Store) keepPath(dir string) string {
	if dir == "" {
		return ""
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	if s.postgres {
		return abs
	}
	home, err := filepath.Abs(filepath.Dir(s.path))
	if err != nil {
		return abs
	}
	if rel, err := filepath.Rel(home, abs); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return abs
}

// openPath is a stored folder as it can be opened.
func (s *Store) openPath(dir string) string {
	if dir == "" || s.postgres || filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(filepath.Dir(s.path), filepath.FromSlash(dir))
}

func put(ctx context.Context, tx *sql.Tx, e Entry) error {
	r := e.Result
	if r == nil || r.ID == "" {
		return errors.New("a result without an id cannot be stored")
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if e.PutAt == "" {
		e.PutAt = time.Now().UTC().Format(time.RFC3339)
	}
	ser, g := frontier.SeriesOf(r), frontier.GroupOf(r)
	_, err = tx.ExecContext(ctx, `INSERT INTO results
		(id, point_id, sweep, bundle, config, model, scenario, corpus, hardware, engine, prec, topology, offload, conc, valid, simulated, measured_at, put_at, definitions, body)
		VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20)
		ON CONFLICT (id) DO UPDATE SET point_id=excluded.point_id, sweep=excluded.sweep, bundle=excluded.bundle, config=excluded.config,
		model=excluded.model, scenario=excluded.scenario, corpus=excluded.corpus, hardware=excluded.hardware, engine=excluded.engine,
		prec=excluded.prec, topology=excluded.topology, offload=excluded.offload, conc=excluded.conc, valid=excluded.valid,
		simulated=excluded.simulated, measured_at=excluded.measured_at, put_at=excluded.put_at, definitions=excluded.definitions, body=excluded.body`,
		r.ID, r.PointID, e.Sweep, e.Bundle, r.Point.Key, g.Model, g.Scenario, g.Corpus, ser.Hardware, ser.Engine, ser.Precision, ser.Topology,
		ser.Offload, r.Point.Conc, bit(r.Valid), bit(r.Simulated), r.MeasuredAt, e.PutAt, r.Definitions, string(body))
	return err
}

func bit(v bool) int {
	if v {
		return 1
	}
	return 0
}

// A Filter selects entries. Empty fields select everything; several values of one field are
// alternatives.
type Filter struct {
	IDs       []string
	Points    []string // point ids
	Sweeps    []string
	Configs   []string
	Models    []string
	Hardware  []string
	Engines   []string
	Precision []string
	Offload   []string
	Conc      []int
	ValidOnly bool
}

func (f *Filter) where() (string, []any) {
	var parts []string
	var args []any
	in := func(col string, vals []string) {
		if len(vals) == 0 {
			return
		}
		marks := make([]string, len(vals))
		for i, v := range vals {
			args = append(args, v)
			marks[i] = fmt.Sprintf("$%d", len(args))
		}
		parts = append(parts, col+" IN ("+strings.Join(marks, ",")+")")
	}
	in("id", f.IDs)
	in("point_id", f.Points)
	in("sweep", f.Sweeps)
	in("config", f.Configs)
	in("model", f.Models)
	in("hardware", f.Hardware)
	in("engine", f.Engines)
	in("prec", f.Precision)
	in("offload", f.Offload)
	if len(f.Conc) > 0 {
		marks := make([]string, len(f.Conc))
		for i, v := range f.Conc {
			args = append(args, v)
			marks[i] = fmt.Sprintf("$%d", len(args))
		}
		parts = append(parts, "conc IN ("+strings.Join(marks, ",")+")")
	}
	if f.ValidOnly {
		parts = append(parts, "valid = 1")
	}
	if len(parts) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(parts, " AND "), args
}

// Query lists the entries that a filter selects, in order of model, hardware, engine,
// precision, topology, offload, concurrency and time.
func (s *Store) Query(ctx context.Context, f Filter) ([]Entry, error) {
	where, args := f.where()
	rows, err := s.db.QueryContext(ctx, `SELECT sweep, bundle, put_at, body FROM results`+where+
		` ORDER BY model, hardware, engine, prec, topology, offload, conc, measured_at, id`, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	defer rows.Close()
	var out []Entry
	for rows.Next() {
		var e Entry
		var body string
		if err := rows.Scan(&e.Sweep, &e.Bundle, &e.PutAt, &body); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		e.Bundle = s.openPath(e.Bundle)
		e.Result = new(result.Result)
		if err := json.Unmarshal([]byte(body), e.Result); err != nil {
			return nil, fmt.Errorf("%s: result: %w", s.path, err)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// Get finds one run by its id, or by a beginning of it that is unique.
func (s *Store) Get(ctx context.Context, id string) (Entry, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id FROM results WHERE substr(id, 1, $1) = $2 ORDER BY id LIMIT 3`, len(id), id)
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", s.path, err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return Entry{}, err
		}
		ids = append(ids, v)
	}
	if err := rows.Err(); err != nil {
		return Entry{}, err
	}
	switch {
	case len(ids) == 0:
		return Entry{}, fmt.Errorf("%s: %w: %s", s.path, ErrNotFound, id)
	case len(ids) > 1:
		return Entry{}, fmt.Errorf("%s: %s %w: %s", s.path, id, ErrAmbiguous, strings.Join(ids, ", "))
	}
	rows.Close()
	es, err := s.Query(ctx, Filter{IDs: ids})
	if err != nil {
		return Entry{}, err
	}
	if len(es) == 0 {
		return Entry{}, fmt.Errorf("%s: %w: %s", s.path, ErrNotFound, id)
	}
	return es[0], nil
}

// ErrNotFound says that no run has the id.
var ErrNotFound = errors.New("no such run")

// ErrAmbiguous says that more than one run has an id that begins so.
var ErrAmbiguous = errors.New("begins several ids")

// Choices are the values that occur in the store, for filters, each with its number of runs.
type Choices struct {
	Sweeps    []Choice `json:"sweeps"`
	Configs   []Choice `json:"configs"`
	Models    []Choice `json:"models"`
	Hardware  []Choice `json:"hardware"`
	Engines   []Choice `json:"engines"`
	Precision []Choice `json:"precision"`
	Offload   []Choice `json:"offload"`
}

// Choice is one value and how many runs have it.
type Choice struct {
	Value string `json:"value"`
	Runs  int    `json:"runs"`
}

// Choices counts what is in the store.
func (s *Store) Choices(ctx context.Context) (Choices, error) {
	var c Choices
	for _, f := range []struct {
		col string
		to  *[]Choice
	}{
		{"sweep", &c.Sweeps}, {"config", &c.Configs}, {"model", &c.Models}, {"hardware", &c.Hardware}, {"engine", &c.Engines},
		{"prec", &c.Precision}, {"offload", &c.Offload},
	} {
		rows, err := s.db.QueryContext(ctx, "SELECT "+f.col+", COUNT(*) FROM results GROUP BY "+f.col+" ORDER BY "+f.col)
		if err != nil {
			return c, fmt.Errorf("%s: %w", s.path, err)
		}
		for rows.Next() {
			var v Choice
			if err := rows.Scan(&v.Value, &v.Runs); err != nil {
				rows.Close()
				return c, err
			}
			*f.to = append(*f.to, v)
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return c, err
		}
	}
	return c, nil
}
