/*
 * An engine without any catalog entry: INSERTs into tables called "sent" are
 * planned into the table "elsewhere".
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "fmgr.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static planner_hook_type previous;

static PlannedStmt *
divert(Query *parse, const char *text, int options, ParamListInfo params)
{
	PlannedStmt *plan = previous ? previous(parse, text, options, params) : standard_planner(parse, text, options, params);
	RangeTblEntry *entry;
	char	   *name;
	Oid			elsewhere;

	if (plan->commandType != CMD_INSERT || plan->resultRelations == NIL)
		return plan;
	entry = rt_fetch(linitial_int(plan->resultRelations), plan->rtable);
	name = get_rel_name(entry->relid);
	elsewhere = RelnameGetRelid("elsewhere");
	if (name == NULL || strcmp(name, "sent") != 0 || !OidIsValid(elsewhere))
		return plan;
	LockRelationOid(elsewhere, RowExclusiveLock);
#if PG_VERSION_NUM >= 160000
	if (entry->perminfoindex > 0)
		((RTEPermissionInfo *) list_nth(plan->permInfos, entry->perminfoindex - 1))->relid = elsewhere;
#endif
	plan->relationOids = lappend_oid(plan->relationOids, elsewhere);
	entry->relid = elsewhere;
	return plan;
}

void
_PG_init(void)
{
	previous = planner_hook;
	planner_hook = divert;
}
