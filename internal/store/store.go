// Package store keeps results in SQLite so that they can be found again: one row a run, with
// the columns that one filters by beside the whole result.
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
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

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
	db   *sql.DB
	path string
}

// Open opens the SQLite database at path and makes it when it is absent.
func Open(path string) (*Store, error) {
	if dir := filepath.Dir(path); dir != "." {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
	}
	dsn := "file:" + escapePath(path) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, path: path}
	if err := s.migrate(); err != nil {
		db.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// OpenExisting opens the database at path and fails when there is none.
func OpenExisting(path string) (*Store, error) {
	if fi, err := os.Stat(path); err != nil {
		return nil, err
	} else if fi.IsDir() {
		return nil, fmt.Errorf("%s is a folder; the store is a file, such as %s", path, filepath.Join(path, "weir.db"))
	}
	return Open(path)
}

// escapePath keeps characters that mean something in a URI.
func escapePath(p string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(p)
}

func (s *Store) migrate() error {
	var v int
	if err := s.db.QueryRow("PRAGMA user_version").Scan(&v); err != nil {
		return err
	}
	if v > schemaVersion {
		return fmt.Errorf("the store has schema %d, this program knows %d: use a newer weir", v, schemaVersion)
	}
	if v == schemaVersion {
		return nil
	}
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(schema); err != nil {
		return err
	}
	if _, err := tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
		return err
	}
	return tx.Commit()
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Path is the file of the database.
func (s *Store) Path() string { return s.path }

// An Entry is one run in the store.
type Entry struct {
	Result *result.Result `json:"result"`
	Sweep  string         `json:"sweep"`  // the sweep that it was part of, "" for none
	Bundle string         `json:"bundle"` // folder of its bundle when it was put, "" when unknown
	PutAt  string         `json:"put_at"` // RFC 3339
}

// Put adds results, or replaces runs that are there already, all or none of them.
func (s *Store) Put(ctx context.Context, entries ...Entry) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, e := range entries {
		if err := put(ctx, tx, e); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return tx.Commit()
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
		return Entry{}, fmt.Errorf("%s: %s begins several ids: %s", s.path, id, strings.Join(ids, ", "))
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
